#include "compare/process/file_lock.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace assay {

std::string locked_by_another(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file, F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN)) return {};
  ::fcntl(file, F_GETLK, &whole);
  if (whole.l_type == F_UNLCK) return "another run has it open";  // it ended a moment ago
  return fmt::format("another run has it open, process {}", whole.l_pid);
}

}  // namespace assay
