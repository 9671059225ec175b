// Reads files and directories into one run of bytes, in an order that depends on nothing but their names.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "dtrain/core/error.hpp"
#include "dtrain/core/text.hpp"

namespace dtrain::data {

/// The bytes of several files, one after another with nothing in between, and the files they came from.
struct Corpus {
  std::string bytes;
  std::vector<std::filesystem::path> files;
};

namespace detail {

/// A path as sentences print it. `path::string()` is the native spelling on POSIX systems.
inline std::string quoted(const std::filesystem::path& path) { return concatenate("'", path.string(), "'"); }

inline std::string read_file(const std::filesystem::path& path) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const auto fail = [&path](int code) {
    return DataError(concatenate("cannot read ", quoted(path), ": ", std::generic_category().message(code)));
  };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) throw fail(errno);
  std::string bytes;
  std::array<char, 1 << 16> chunk;
  while (const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), file.get()))
    bytes.append(chunk.data(), count);
  if (std::ferror(file.get())) throw fail(errno);
  return bytes;
}

inline bool hidden(const std::filesystem::path& path) { return path.filename().string().starts_with('.'); }

/// Regular files below `directory`, sorted by path; hidden ones and hidden directories are left out.
inline std::vector<std::filesystem::path> files_below(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code code;
  const auto check = [&] {
    if (code) throw DataError(concatenate("cannot list ", quoted(directory), ": ", code.message()));
  };
  fs::recursive_directory_iterator entry(directory, code);
  check();
  while (entry != fs::recursive_directory_iterator()) {
    const fs::file_status status = entry->symlink_status(code);
    check();
    if (hidden(entry->path())) {
      if (fs::is_directory(status)) entry.disable_recursion_pending();
    } else if (fs::is_regular_file(status)) {
      files.push_back(entry->path());
    }
    entry.increment(code);
    check();
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace detail

/// Reads `paths` in the order given. A file is taken as it is. A directory stands for the regular files below it,
/// sorted by path; hidden files and directories (names that begin with a dot), symbolic links, and files that hold a
/// NUL byte (which no text does) are passed over.
///
/// Throws DataError when a path is missing, is neither a file nor a directory, cannot be read, or when the whole is
/// empty; a file below a directory that cannot be read is an error too, never silently left out.
inline Corpus read_corpus(const std::vector<std::filesystem::path>& paths) {
  namespace fs = std::filesystem;
  if (paths.empty()) throw DataError("no text was named: give at least one file or directory");
  Corpus corpus;
  const auto take = [&corpus](const fs::path& path, const std::string& bytes) {
    corpus.bytes += bytes;
    corpus.files.push_back(path);
  };
  for (const fs::path& path : paths) {
    std::error_code code;
    const fs::file_status status = fs::status(path, code);
    if (status.type() == fs::file_type::not_found)
      throw DataError(concatenate(detail::quoted(path), " does not exist: give a file or a directory of text"));
    if (fs::is_directory(status)) {
      for (const fs::path& file : detail::files_below(path)) {
        const std::string bytes = detail::read_file(file);
        if (bytes.find('\0') == std::string::npos) take(file, bytes);
      }
    } else if (fs::is_regular_file(status)) {
      take(path, detail::read_file(path));
    } else if (code) {
      throw DataError(concatenate("cannot read ", detail::quoted(path), ": ", code.message()));
    } else {
      throw DataError(concatenate(detail::quoted(path), " is neither a file nor a directory"));
    }
  }
  if (corpus.bytes.empty()) {
    std::vector<std::string> names;
    for (const fs::path& path : paths) names.push_back(detail::quoted(path));
    throw DataError(concatenate("there is no text in ", join(names), ": ", corpus.files.size(),
                                " files were read and hold 0 bytes"));
  }
  return corpus;
}

}  // namespace dtrain::data
