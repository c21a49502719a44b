#ifndef ATTND_BASE_FLAG_FILE_H_
#define ATTND_BASE_FLAG_FILE_H_

// Flags in a file, one a line: `port = 7411`.

#include <set>
#include <string>

#include "CLI/CLI.hpp"

namespace attnd {

// Gives `app`, which ParseFlags has parsed, those flags of the file at `path`
// that the command line did not have. Values obey ParseFlags' rules, and it is
// told the same `may_be_empty`. The file is a part of INI and of TOML:
//
// - A line is `name = value`, with the flag's name without its dashes; a flag
//   that takes no value on the command line is `insecure = true`.
// - A line may be empty, and a `#` at its start or after a blank begins a
//   comment.
// - A value is all that stands there, commas and blanks within it as well. One
//   that has a `#`, or blanks at its ends, is put into "" or '', and in those
//   nothing stands for anything else.
// - No flag is there twice, none that is not configurable(), and no section.
//
// CLI11's own reader takes no part in it: it splits values at commas and
// blanks, passes over what it does not understand, and does not say where an
// error is.
//
// Throws CLI::ParseError; what it says begins with "path:line: " and names the
// flag, or with "path: " where the file cannot be read. Flags of the lines
// before that one have been set. A value that the command line overrides is not
// looked at.
void ReadFlagFile(CLI::App& app, const std::string& path,
                  const std::set<std::string>& may_be_empty = {});

// Such a file with every flag of `app` that may be in one, in the groups and
// with the help text of --help. Those that were given have their values; the
// others are commented out, `#port = 7411`, with their defaults. No value that
// was given may have a line break, or both kinds of quotes.
std::string WriteFlagFile(const CLI::App& app);

}  // namespace attnd

#endif  // ATTND_BASE_FLAG_FILE_H_
