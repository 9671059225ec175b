// expect: dtrain: a model that reads features is trained on a FeatureSource
#include "dtrain/data/feature_array.hpp"
#include "dtrain/data/token_array.hpp"
#include "dtrain/nn/linear.hpp"
#include "dtrain/nn/sequence.hpp"
#include "dtrain/train/trainer.hpp"

using namespace dtrain;

using TrainerOfFeatures = Trainer<nn::Sequence<nn::Linear<8, 8>>, Serial>;

#ifndef DTRAIN_COMPILE_FAIL_FIXED
using Source = data::TokenArray;
#else
using Source = data::FeatureArray;
#endif

double loss(TrainerOfFeatures& trainer, const Source& source) { return trainer.step(source, {.samples = 8}).loss; }
