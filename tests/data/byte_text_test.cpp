#include "dtrain/data/byte_text.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using dtrain::Index;
using dtrain::Range;
using dtrain::data::ByteText;
using dtrain::data::ignore_index;
using dtrain::data::Position;
using dtrain::data::rows_of_rank;
using dtrain::data::TextOptions;
using dtrain::data::TokenBatch;

namespace {

struct Rows {
  std::vector<std::int32_t> inputs, targets;
  friend bool operator==(const Rows&, const Rows&) = default;
};

Rows room(const ByteText& text, Index samples) {
  const auto size = static_cast<std::size_t>(samples * text.context());
  return {std::vector<std::int32_t>(size, -7), std::vector<std::int32_t>(size, -7)};
}

TokenBatch batch_of(Rows& rows, Index samples, Index context) { return {rows.inputs, rows.targets, samples, context}; }

Rows training(const ByteText& text, std::uint64_t seed, Position start, Range range) {
  Rows rows = room(text, range.size());
  text.fill_training(seed, start, range, batch_of(rows, range.size(), text.context()));
  return rows;
}

Rows validation(const ByteText& text, Range range) {
  Rows rows = room(text, range.size());
  text.fill_validation(range, batch_of(rows, range.size(), text.context()));
  return rows;
}

void append(Rows& rows, const Rows& more) {
  rows.inputs.insert(rows.inputs.end(), more.inputs.begin(), more.inputs.end());
  rows.targets.insert(rows.targets.end(), more.targets.begin(), more.targets.end());
}

/// Bytes 0, 1, 2, ... so that a token tells where in the text it stood.
ByteText counting(Index size, TextOptions options) {
  std::string text;
  for (Index i = 0; i < size; ++i) text += static_cast<char>(static_cast<unsigned char>(i));
  return ByteText::from_memory(text, options);
}

template <class Kind, class Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the text is cut after nine tenths, rounded down") {
  const ByteText text = counting(99, {.context = 4});
  CHECK(text.training_text().size() == 89);
  CHECK(text.validation_text().size() == 10);
  CHECK(text.vocabulary() == 256);
  CHECK(text.context() == 4);
  CHECK(text.training_samples() == 89 / 4 - 1);
  CHECK(text.validation_samples() == 3);
}

TEST_CASE("an epoch's windows lie apart, within the training part, and each predicts the next byte") {
  const ByteText text = counting(200, {.context = 7});  // 180 for training
  std::vector<Index> phases;
  for (Index epoch = 0; epoch < 40; ++epoch) {
    const Index samples = text.training_samples();
    const Rows rows = training(text, 3, {epoch, 0}, {0, samples});
    std::vector<Index> begins;
    for (Index s = 0; s < samples; ++s) {
      const auto at = static_cast<std::size_t>(s * 7);
      begins.push_back(rows.inputs[at]);
      for (std::size_t i = 0; i < 7; ++i) {
        REQUIRE(rows.inputs[at + i] == rows.inputs[at] + static_cast<int>(i));
        REQUIRE(rows.targets[at + i] == rows.inputs[at + i] + 1);
        REQUIRE(rows.targets[at + i] < 180);
      }
    }
    CHECK_FALSE(std::is_sorted(begins.begin(), begins.end()));
    std::sort(begins.begin(), begins.end());
    for (std::size_t s = 1; s < begins.size(); ++s) REQUIRE(begins[s] == begins[s - 1] + 7);
    phases.push_back(begins[0]);
  }
  std::sort(phases.begin(), phases.end());
  phases.erase(std::unique(phases.begin(), phases.end()), phases.end());
  CHECK(phases == std::vector<Index>{0, 1, 2, 3, 4, 5, 6});
}

// fault F9
TEST_CASE("four ranks share a hundred samples: disjoint, complete, another order in each epoch, resumable") {
  // Context 2 and 202 training bytes: a hundred windows.
  const ByteText text = counting(202, {.context = 2, .held_out = 0});
  REQUIRE(text.training_samples() == 100);
  constexpr Index batch = 20;
  std::vector<std::vector<std::int32_t>> epochs;
  Position position;
  for (Index epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::int32_t> begins;
    for (Index step = 0; step < 5; ++step) {
      CHECK(position == Position{epoch, step * batch});
      for (Index rank = 0; rank < 4; ++rank) {
        const Rows rows = training(text, 1, position, rows_of_rank(batch, 4, rank));
        for (std::size_t i = 0; i < rows.inputs.size(); i += 2) begins.push_back(rows.inputs[i]);
      }
      position = position.advanced(batch, text.training_samples());
    }
    epochs.push_back(begins);
    std::sort(begins.begin(), begins.end());
    REQUIRE(begins.size() == 100);
    for (std::size_t i = 1; i < 100; ++i) REQUIRE(begins[i] == begins[i - 1] + 2);
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(position == Position{2, 0});

  // Resume in the middle of epoch 0 on another number of ranks: the rest of the same sequence.
  std::vector<std::int32_t> rest;
  for (Position at = Position{}.advanced(60, 100); at.epoch == 0; at = at.advanced(10, 100))
    for (Index rank = 0; rank < 2; ++rank) {
      const Rows rows = training(ByteText(text), 1, at, rows_of_rank(10, 2, rank));
      for (std::size_t i = 0; i < rows.inputs.size(); i += 2) rest.push_back(rows.inputs[i]);
    }
  CHECK(rest == std::vector<std::int32_t>(epochs[0].begin() + 60, epochs[0].end()));
}

// fault F11
TEST_CASE("a batch that meets the end of an epoch goes on in the next") {
  const ByteText text = counting(62, {.context = 5, .held_out = 0});
  REQUIRE(text.training_samples() == 11);
  // Batches of 4 over 11 samples: the third takes 3 of epoch 0 and 1 of epoch 1.
  Rows joined = training(text, 9, {0, 8}, {0, 3});
  append(joined, training(text, 9, {1, 0}, {0, 1}));
  CHECK(training(text, 9, {0, 8}, {0, 4}) == joined);
  // Uneven shares cover it too.
  Rows shares = training(text, 9, {0, 8}, rows_of_rank(4, 3, 0));
  for (Index rank = 1; rank < 3; ++rank) append(shares, training(text, 9, {0, 8}, rows_of_rank(4, 3, rank)));
  CHECK(shares == joined);
}

// fault C7
TEST_CASE("reading is pure: what one rank reads changes nothing for another, nor does the order of reading") {
  const ByteText text = counting(250, {.context = 6});
  const Rows first = training(text, 4, {0, 12}, {0, 12});
  for (Index reader = 0; reader < 10; ++reader) (void)training(text, 4, {reader, 0}, {0, 3 + reader});
  CHECK(training(text, 4, {0, 12}, {0, 12}) == first);
  for (const Index ranks : {1, 2, 3, 4, 6, 12}) {
    Rows joined;
    for (Index rank = 0; rank < ranks; ++rank)
      append(joined, training(text, 4, {0, 12}, rows_of_rank(12, ranks, rank)));
    CHECK(joined == first);
  }
  CHECK(training(text, 5, {0, 12}, {0, 12}) != first);
}

TEST_CASE("a stage may ask for inputs or targets alone") {
  const ByteText text = counting(100, {.context = 4});
  const Rows both = training(text, 2, {1, 3}, {2, 6});
  Rows inputs = room(text, 4), targets = room(text, 4);
  text.fill_training(2, {1, 3}, {2, 6}, {.inputs = inputs.inputs, .targets = {}, .samples = 4, .context = 4});
  text.fill_training(2, {1, 3}, {2, 6}, {.inputs = {}, .targets = targets.targets, .samples = 4, .context = 4});
  CHECK(inputs.inputs == both.inputs);
  CHECK(targets.targets == both.targets);
}

TEST_CASE("validation predicts every held-out byte but the first, once") {
  for (const Index held : {9, 10, 11, 16, 17, 18, 24, 25}) {
    const Index size = held * 4;
    const ByteText text = counting(size, {.context = 8, .held_out = 0.25});
    REQUIRE(static_cast<Index>(text.validation_text().size()) == held);
    const Index samples = text.validation_samples();
    CHECK(samples == (held - 1 + 7) / 8);
    // Two ranks, in batches of 2 each, past the end: the surplus rows count nothing.
    std::vector<std::int32_t> predicted;
    for (Index begin = 0; begin < samples; begin += 4)
      for (Index rank = 0; rank < 2; ++rank) {
        const Range share = rows_of_rank(4, 2, rank);
        const Rows rows = validation(text, {begin + share.begin, begin + share.end});
        for (std::size_t i = 0; i < rows.targets.size(); ++i) {
          if (rows.targets[i] == ignore_index) {
            CHECK(rows.inputs[i] == 0);
            continue;
          }
          CHECK(rows.inputs[i] + 1 == rows.targets[i]);
          predicted.push_back(rows.targets[i]);
        }
      }
    std::vector<std::int32_t> expected;
    for (Index i = size - held + 1; i < size; ++i) expected.push_back(static_cast<std::int32_t>(i));
    CHECK(predicted == expected);
  }
}

TEST_CASE("the shortest text has one window in each part") {
  const ByteText text = counting(10, {.context = 4, .held_out = 0.5});
  CHECK(text.training_samples() == 1);
  CHECK(text.validation_samples() == 1);
  for (Index epoch = 0; epoch < 5; ++epoch)
    CHECK(training(text, 0, {epoch, 0}, {0, 1}).targets == std::vector<std::int32_t>{1, 2, 3, 4});
  CHECK(validation(text, {0, 1}).targets == std::vector<std::int32_t>{6, 7, 8, 9});
}

TEST_CASE("too short a text, and options out of range, are refused with the numbers") {
  using dtrain::ConfigurationError;
  using dtrain::DataError;
  CHECK(refusal<DataError>([] { counting(9, {.context = 4, .held_out = 0.6}); }) ==
        "the text is too short: its training part has 3 of 9 bytes, but one window of 4 bytes and the byte after it "
        "need 5; give more text or a smaller context");
  CHECK(refusal<DataError>([] { counting(40, {.context = 4}); }) ==
        "the text is too short: its held-out part has 4 of 40 bytes, but one window of 4 bytes and the byte after it "
        "need 5; give more text or a smaller context");
  CHECK_NOTHROW(counting(5, {.context = 4, .held_out = 0}));
  CHECK(counting(5, {.context = 4, .held_out = 0}).validation_samples() == 0);
  CHECK(refusal<ConfigurationError>([] { counting(40, {.context = 0}); }) ==
        "ByteText: context is 0, but must be positive");
  CHECK(refusal<ConfigurationError>([] { counting(40, {.context = 4, .held_out = 1}); }) ==
        "ByteText: held_out is 1, but must lie in [0, 1)");
  CHECK(refusal<DataError>([] { (void)ByteText("/nonexistent/text", {.context = 4}); }) ==
        "'/nonexistent/text' does not exist: give a file or a directory of text");
}

TEST_CASE("a batch whose sizes do not fit is refused before anything is written") {
  const ByteText text = counting(100, {.context = 4});
  Rows rows = room(text, 2);
  const auto fill = [&](Range range, Index samples, Index context) {
    return refusal<dtrain::ConfigurationError>(
        [&] { text.fill_training(0, {}, range, batch_of(rows, samples, context)); });
  };
  CHECK(fill({0, 2}, 2, 4).empty());
  CHECK(fill({0, 3}, 2, 4) == "ByteText: rows 0 to 3 were asked for into a batch of 2 samples");
  CHECK(fill({0, 2}, 2, 5) == "ByteText: samples have 4 tokens, but the batch to fill has 5");
  CHECK(fill({0, 3}, 3, 4) == "ByteText: the batch has room for 8 inputs, but 3 samples of 4 tokens need 12");
}

TEST_CASE("files become one text") {
  namespace fs = std::filesystem;
  const fs::path path = fs::temp_directory_path() / "dtrain_byte_text_test.txt";
  std::ofstream(path, std::ios::binary) << "abcdefghij";
  const ByteText one(path, {.context = 2, .held_out = 0});
  const ByteText two({path, path}, {.context = 2, .held_out = 0});
  fs::remove(path);
  CHECK(one.training_text() == "abcdefghij");
  CHECK(two.training_text() == "abcdefghijabcdefghij");
  CHECK(two.files().size() == 2);
}

TEST_CASE("any bytes survive encoding and decoding") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(static_cast<unsigned char>(255 - i));
  const auto tokens = ByteText::encode(bytes);
  CHECK(tokens.front() == 255);
  CHECK(ByteText::decode(tokens) == bytes);
  CHECK(ByteText::decode(std::vector<std::int32_t>{72, -100, 256, 105}) == "H??i");
}
