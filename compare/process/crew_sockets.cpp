#include "compare/process/crew_sockets.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace assay {

namespace {

using Clock = std::chrono::steady_clock;

std::runtime_error trouble(const char* what) {
  return std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

std::string secret() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw trouble("no random bytes");
  std::string out;
  for (const unsigned char b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

// Equal on one machine until it is started anew.
std::string machine() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id.empty() ? "unknown" : id;
}

std::string host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// Numeric addresses of this machine that others may reach.
std::vector<std::string> addresses() {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> keep(all, ::freeifaddrs);
  for (const ifaddrs* a = all; a; a = a->ifa_next) {
    char text[INET6_ADDRSTRLEN] = "";
    if (!a->ifa_addr) continue;
    if (a->ifa_addr->sa_family == AF_INET) {
      const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr;
      if (ntohl(v4.s_addr) >> 24 != 127) ::inet_ntop(AF_INET, &v4, text, sizeof text);
    } else if (a->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(a->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LOOPBACK(&v6) && !IN6_IS_ADDR_LINKLOCAL(&v6))
        ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
    if (*text) out.emplace_back(text);
  }
  return out;
}

// A socket of IPv6 takes IPv4 too; a machine may have none.
int listen_anywhere(uint16_t& port) {
  for (const int family : {AF_INET6, AF_INET}) {
    const int s = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) continue;
    sockaddr_storage at{};
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    at.ss_family = static_cast<sa_family_t>(family);  // any address, any port
    const int off = 0;
    if (family == AF_INET6) ::setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto* const any = reinterpret_cast<sockaddr*>(&at);
    if (::bind(s, any, size) == 0 && ::listen(s, SOMAXCONN) == 0 && ::getsockname(s, any, &size) == 0) {
      port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&at)->sin6_port
                                      : reinterpret_cast<sockaddr_in*>(&at)->sin_port);
      return s;
    }
    ::close(s);
  }
  throw trouble("cannot listen for other processes");
}

// A machine that is gone says nothing: half a minute without an answer ends a connection.
void keep_alive(int s) {
  const int yes = 1, idle = 10, between = 5, tries = 4, unanswered_ms = 30'000;
  ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(s, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  ::setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
  ::setsockopt(s, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
  ::fcntl(s, F_SETFL, ::fcntl(s, F_GETFL) & ~O_NONBLOCK);
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<decltype(left)>(left, 0));
}

bool ready(int s, short what, Clock::time_point until) {
  pollfd p{s, what, 0};
  for (;;) {
    const int n = ::poll(&p, 1, milliseconds_until(until));
    if (n >= 0 || errno != EINTR) return n > 0;
  }
}

// Reads what is there, up to a line end and never behind it; nothing where none has come yet. False where
// none will come.
bool read_line(int s, std::string& line) {
  for (char c; line.size() < 512 && !line.ends_with('\n');) {
    const ssize_t n = ::recv(s, &c, 1, MSG_DONTWAIT);
    if (n > 0) line += c;
    else if (n < 0 && errno == EINTR) continue;
    else return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  return line.ends_with('\n');
}

struct Words {
  std::string question, answer, machine, port, addresses;
};
Words words_of(const std::string& word) {
  Words w;
  std::istringstream(word) >> w.question >> w.answer >> w.machine >> w.port >> w.addresses;
  return w;
}

// A descriptor for each process, and those that only listen or wait, beside what the program has open.
void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Door::Door() {
  uint16_t port = 0;
  listening_ = listen_anywhere(port);
  word_ = fmt::format("{} {} {} {} {}", secret(), secret(), machine(), port, fmt::join(addresses(), ","));
  if (word_.size() >= kLongestWord) word_.erase(word_.rfind(',', kLongestWord - 1));
}

Door::~Door() { ::close(listening_); }

std::vector<Connection> Door::let_in(int processes, double limit) const {
  allow_descriptors();
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit));
  const Words words = words_of(word_);
  std::vector<Connection> inside(static_cast<size_t>(processes - 1));
  std::map<int, std::string> asking;  // what those have said that have come
  const auto answer = [&](int s, const std::string& line) {
    std::string question, who;
    int process = 0;
    std::istringstream(line) >> question >> process >> who;
    if (question != words.question || process < 1 || process >= processes) return false;
    Connection& c = inside[static_cast<size_t>(process - 1)];
    const std::string text = words.answer + "\n";
    if (c.descriptor >= 0 || ::send(s, text.data(), text.size(), MSG_NOSIGNAL) < 0) return false;
    keep_alive(s);
    c = {s, who};
    return true;
  };
  for (size_t missing = inside.size(); missing > 0;) {
    std::vector<pollfd> polled = {{listening_, POLLIN, 0}};
    for (const auto& [s, said] : asking) polled.push_back({s, POLLIN, 0});
    if (::poll(polled.data(), polled.size(), milliseconds_until(until)) <= 0 && Clock::now() >= until) break;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const int s = polled[i].fd;
      std::string& said = asking[s];
      if (read_line(s, said) && !said.ends_with('\n')) continue;
      if (said.ends_with('\n') && answer(s, said)) --missing;
      else ::close(s);
      asking.erase(s);
    }
    for (int s; (s = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
      asking.emplace(s, "");
  }
  for (const auto& [s, said] : asking) ::close(s);
  std::vector<std::string> absent;
  for (size_t i = 0; i < inside.size(); ++i)
    if (inside[i].descriptor < 0) absent.push_back(std::to_string(i + 1));
  if (absent.empty()) return inside;
  for (const Connection& c : inside)
    if (c.descriptor >= 0) ::close(c.descriptor);
  throw std::runtime_error(fmt::format("of {} processes these did not come within {:g} s: {}", processes,
                                       limit, fmt::join(absent, ", ")));
}

namespace {

// A connection to the address, or why there is none.
Descriptor connect_to(const std::string& address, const std::string& port, Clock::time_point until,
                      std::string& why) {
  const auto fail = [&](int error) {
    why = std::strerror(error);
    return Descriptor(-1);
  };
  const bool six = address.find(':') != address.npos;
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  v6.sin6_family = AF_INET6;
  v4.sin_family = AF_INET;
  v6.sin6_port = v4.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  if (::inet_pton(six ? AF_INET6 : AF_INET, address.c_str(),
                  six ? static_cast<void*>(&v6.sin6_addr) : &v4.sin_addr) != 1)
    return fail(EINVAL);
  Descriptor s(::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (s.get() < 0) return fail(errno);
  const auto* const to =
      six ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  if (::connect(s.get(), to, six ? sizeof v6 : sizeof v4) == 0) return s;
  if (errno != EINPROGRESS) return fail(errno);
  if (!ready(s.get(), POLLOUT, until)) return fail(ETIMEDOUT);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error ? fail(error) : std::move(s);
}

}  // namespace

Connection enter(const std::string& word, int process, double limit) {
  const Words words = words_of(word);
  const auto after = [](double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  const auto until = after(limit);
  std::vector<std::string> tried;
  std::istringstream list((words.machine == machine() ? "127.0.0.1," : "") + words.addresses);
  for (std::string address; std::getline(list, address, ',');) {
    // An address that nobody has may be silent.
    std::string why = "no answer";
    Descriptor s = connect_to(address, words.port, std::min(until, after(limit / 10)), why);
    const std::string text = fmt::format("{} {} {}:{}\n", words.question, process, host(), ::getpid());
    std::string line;
    if (s.get() >= 0 && ::send(s.get(), text.data(), text.size(), MSG_NOSIGNAL) > 0) {
      const auto patience = std::min(until, after(limit / 2));
      while (!line.ends_with('\n') && ready(s.get(), POLLIN, patience) && read_line(s.get(), line)) {}
    }
    if (line == words.answer + "\n") {
      keep_alive(s.get());
      return {s.release(), "rank 0"};
    }
    tried.push_back(fmt::format("{}: {}", address, why));
  }
  throw std::runtime_error(
      fmt::format("cannot reach rank 0 at port {} of {}", words.port, fmt::join(tried, ", ")));
}

}  // namespace assay
