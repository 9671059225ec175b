#include "dtrain/data/corpus.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using dtrain::data::read_corpus;

namespace {

/// A directory of its own for one test, removed at the end.
struct Folder {
  fs::path path;
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "dtrain_corpus_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path write(const fs::path& name, const std::string& bytes) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
};

std::string refusal(const std::vector<fs::path>& paths) {
  try {
    (void)read_corpus(paths);
  } catch (const dtrain::DataError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("files are read whole, in the order given") {
  const Folder folder;
  const std::string binary("\0\xff\n\r\n\x80", 6);
  const fs::path b = folder.write("b", "second"), a = folder.write("a", binary);
  CHECK(read_corpus({b, a}).bytes == "second" + binary);
  CHECK(read_corpus({a, b, a}).bytes == binary + "second" + binary);
  const fs::path large = folder.write("large", std::string(200001, 'x'));
  CHECK(read_corpus({large}).bytes == std::string(200001, 'x'));
}

TEST_CASE("a directory is its visible text files, sorted by path") {
  const Folder folder;
  folder.write("z.txt", "z");
  folder.write("b/two.txt", "2");
  folder.write("b/one.txt", "1");
  folder.write("a.txt", "a");
  folder.write("empty.txt", "");
  folder.write(".hidden", "no");
  folder.write(".git/config", "no");
  folder.write("b/image.bin", std::string("n\0o", 3));
  fs::create_symlink(folder.path / "a.txt", folder.path / "link.txt");
  fs::create_directory_symlink(folder.path / "b", folder.path / "loop");
  const auto corpus = read_corpus({folder.path});
  CHECK(corpus.bytes == "a12z");
  const std::vector<fs::path> expected{folder.path / "a.txt", folder.path / "b/one.txt", folder.path / "b/two.txt",
                                       folder.path / "empty.txt", folder.path / "z.txt"};
  CHECK(corpus.files == expected);
}

TEST_CASE("what cannot be read is refused, with its name") {
  const Folder folder;
  const std::string base = folder.path.string();
  CHECK(refusal({}) == "no text was named: give at least one file or directory");
  CHECK(refusal({folder.path / "none.txt"}) ==
        "'" + base + "/none.txt' does not exist: give a file or a directory of text");
  const fs::path empty = folder.write("empty.txt", "");
  CHECK(refusal({empty}) == "there is no text in '" + base + "/empty.txt': 1 files were read and hold 0 bytes");
  const fs::path text = folder.write("text.txt", "text");
  CHECK(refusal({text / "below"}).find("text.txt/below'") != std::string::npos);
  const fs::path pipe = folder.path / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(refusal({pipe}) == "'" + base + "/pipe' is neither a file nor a directory");
  fs::remove(text), fs::remove(pipe), fs::remove(empty);
  CHECK(refusal({folder.path}) == "there is no text in '" + base + "': 0 files were read and hold 0 bytes");
  // A file whose reading fails whoever asks.
  if (fs::exists("/proc/self/mem"))
    CHECK(refusal({"/proc/self/mem"}) == "cannot read '/proc/self/mem': Input/output error");
}

TEST_CASE("missing permission is an error for a file, a directory and a file below one") {
  if (geteuid() == 0) return;  // may read everything
  const Folder folder;
  const fs::path secret = folder.write("sub/secret.txt", "text");
  folder.write("sub/open.txt", "text");
  fs::permissions(secret, fs::perms::none);
  CHECK(refusal({secret}) == "cannot read '" + secret.string() + "': Permission denied");
  CHECK(refusal({folder.path}) == "cannot read '" + secret.string() + "': Permission denied");
  fs::permissions(folder.path / "sub", fs::perms::none);
  CHECK(refusal({folder.path}).find("Permission denied") != std::string::npos);
  fs::permissions(folder.path / "sub", fs::perms::owner_all);
}
