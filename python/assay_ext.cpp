// The module assay._assay: arrays come as anything with DLPack or the buffer protocol, answers go as JSON,
// but for PreparedLine. The interpreter's lock is released while the library works; what the caller passed is
// held by the arguments until then.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "compare/report/build.h"
#include "fixtures/json.h"
#include "python/case.h"
#include "python/dumped.h"
#include "python/line.h"
#include "python/prepared_line.h"
#include "python/vectors.h"

namespace nb = nanobind;
using namespace assay;

namespace {

using Read = nb::ndarray<nb::ro>;
using Written = nb::ndarray<>;
// Bytes in the CPU's memory, by their address, and the object that owns them.
struct Memory {
  uintptr_t address = 0;
  size_t bytes = 0;
  nb::object owner;
};
// name, bytes, dtype (safetensors' word), shape
using Given =
    std::vector<std::tuple<std::string, std::variant<Memory, Read>, std::string, std::vector<int64_t>>>;
using Outputs = std::vector<std::tuple<std::string, std::variant<Memory, Written>>>;

// Rows of C order; sizes of 1 may have any stride.
bool is_contiguous(const auto& array) {
  int64_t wanted = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != wanted) return array.size() == 0;
    wanted *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

template <class Byte, class Array> std::span<Byte> bytes_of(const Array& array) {
  if (!is_contiguous(array) || array.device_type() != nb::device::cpu::value)
    throw nb::buffer_error("expected a contiguous array in CPU memory");
  return {static_cast<Byte*>(array.data()), array.nbytes()};
}

template <class Byte> std::span<Byte> bytes_of(const Memory& memory) {
  return {reinterpret_cast<Byte*>(memory.address), memory.bytes};
}
template <class Byte, class... Kinds> std::span<Byte> bytes_of(const std::variant<Kinds...>& lent) {
  return std::visit([](const auto& one) { return bytes_of<Byte>(one); }, lent);
}

std::vector<python::GivenPlane> planes_of(const Given& given) {
  std::vector<python::GivenPlane> out;
  for (const auto& [name, lent, dtype, shape] : given)
    out.push_back({name, dtype, shape, bytes_of<const std::byte>(lent)});
  return out;
}

std::vector<python::OutputPlane> planes_of(const Outputs& outputs) {
  std::vector<python::OutputPlane> out;
  for (const auto& [name, lent] : outputs) out.push_back({name, bytes_of<std::byte>(lent)});
  return out;
}

// An answer as text. What the caller got wrong is an answer too; the package raises it.
std::string answer(const std::function<json::Value()>& work) {
  try {
    return json::dump(work());
  } catch (const python::Failure& f) {
    return json::dump(python::to_json(f));
  } catch (const std::bad_alloc&) {
    return json::dump(python::to_json(python::Failure("run", {"not enough memory for this case", 0, ""})));
  } catch (const std::exception& e) {  // no thread to be had, for instance
    return json::dump(python::to_json(python::Failure("run", {e.what(), 0, ""})));
  }
}

// Runs work without the lock and returns its answer.
std::string unlocked(const std::function<json::Value()>& work) {
  nb::gil_scoped_release release;
  return answer(work);
}

// The same on another thread, while this one looks for Ctrl-C: it raises `stop`, waits for the work to end,
// and then raises KeyboardInterrupt.
std::string interruptible(const std::function<json::Value(const std::atomic<bool>&)>& work) {
  std::atomic<bool> stop = false;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false, interrupted = false;
  std::string text;
  {
    nb::gil_scoped_release release;
    std::jthread worker([&] {
      text = answer([&] { return work(stop); });
      const std::lock_guard lock(mutex);
      done = true;
      ended.notify_one();
    });
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; })) {
      if (interrupted) continue;
      const nb::gil_scoped_acquire acquire;
      interrupted = PyErr_CheckSignals() != 0;
      stop = interrupted;
      if (interrupted) PyErr_Clear();  // raised again below, when nothing reads the arrays any more
    }
  }
  if (!interrupted) return text;
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw nb::python_error();
}

python::CaseSettings settings_of(int threads, double budget, bool pairs, const std::string& subject,
                                 const std::string& unpinned, const std::atomic<bool>* stop) {
  return {.threads = threads,
          .budget = budget,
          .pairs = pairs,
          .subject = subject,
          .unpinned = unpinned,
          .stop = stop};
}

// What an array of any library says of itself: (DLPack's type code, bits, lanes, shape, strides in elements,
// device type).
nb::tuple array_facts(const Read& array) {
  nb::list shape, strides;
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  return nb::make_tuple(static_cast<int>(array.dtype().code), static_cast<int>(array.dtype().bits),
                        static_cast<int>(array.dtype().lanes), shape, strides, array.device_type(),
                        is_contiguous(array), reinterpret_cast<uintptr_t>(array.data()));
}

// The elements in rows of C order.
nb::bytes array_bytes(const Read& array) {
  if (array.device_type() != nb::device::cpu::value)
    throw nb::buffer_error("expected an array in CPU memory");
  const size_t width = array.itemsize();
  std::string out(array.nbytes(), '\0');
  std::vector<size_t> at(array.ndim(), 0);
  const char* data = static_cast<const char*>(array.data());
  for (size_t n = 0; n < array.size(); ++n) {
    int64_t offset = 0;
    for (size_t i = 0; i < at.size(); ++i) offset += static_cast<int64_t>(at[i]) * array.stride(i);
    std::copy_n(data + offset * static_cast<int64_t>(width), width, out.data() + n * width);
    for (size_t i = at.size(); i-- > 0;) {
      if (++at[i] < array.shape(i)) break;
      at[i] = 0;
    }
  }
  return nb::bytes(out.data(), out.size());
}

// A memoryview of bytes that `owner` holds.
nb::ndarray<nb::memview, const uint8_t, nb::ndim<1>> view_of(std::span<const std::byte> bytes,
                                                             nb::handle owner) {
  return {bytes.data(), {bytes.size()}, owner};
}

// A new T, or the error as text.
template <class T, class Argument> nb::object made(const Argument& argument) {
  try {
    return nb::cast(new T(argument), nb::rv_policy::take_ownership);
  } catch (const python::Failure& f) {
    return nb::cast(json::dump(python::to_json(f)));
  }
}

void define_cases(nb::module_& m) {
  m.def("run",
        [](const std::string& line, const Given& given, const Outputs& outputs, int threads, bool exact) {
          const auto planes = planes_of(given);
          const auto to = planes_of(outputs);
          // Nothing in it looks for Ctrl-C, so another thread would only cost its start: Python raises
          // KeyboardInterrupt when it returns.
          return unlocked([&] {
            auto settings = settings_of(threads, 0, false, "outputs", "", nullptr);
            settings.exact = exact;
            return python::run(line, planes, to, settings);
          });
        });
  m.def("inputs", [](const std::string& line, const Outputs& outputs) {
    const auto to = planes_of(outputs);
    return unlocked([&] { return python::inputs(line, to); });
  });
  m.def("check", [](const std::string& line, const Given& given, int threads, double budget,
                    const std::string& subject, const std::string& unpinned, bool exact) {
    const auto planes = planes_of(given);
    return interruptible([&](const std::atomic<bool>& stop) {
      auto settings = settings_of(threads, budget, true, subject, unpinned, &stop);
      settings.exact = exact;
      return python::check(line, planes, settings);
    });
  });
  m.def("explain", [](const std::string& line, const Given& given, int threads, double budget, bool pairs,
                      const std::string& subject, const std::string& unpinned) {
    const auto planes = planes_of(given);
    return interruptible([&](const std::atomic<bool>& stop) {
      return python::explain(line, planes, settings_of(threads, budget, pairs, subject, unpinned, &stop));
    });
  });
  m.def("identify", [](const std::string& line, const Given& given, int threads) {
    const auto planes = planes_of(given);
    return interruptible([&](const std::atomic<bool>& stop) {
      return python::identify(line, planes, settings_of(threads, 0, false, "outputs", "", &stop));
    });
  });
  m.def("coherence", [](const std::string& line, const Given& given) {
    const auto planes = planes_of(given);
    return unlocked([&] { return python::coherence(line, planes); });
  });
  m.def("trace", [](const std::string& line, const Given& given, int64_t row, int64_t col,
                    const std::string& direction) {
    const auto planes = planes_of(given);
    return unlocked([&] { return python::trace(line, planes, row, col, direction); });
  });
  m.def("compare",
        [](const std::string& encoding, int64_t rows, int64_t cols, const Read& got, const Read& want) {
          const auto a = bytes_of<const std::byte>(got), b = bytes_of<const std::byte>(want);
          return unlocked([&] { return python::compare(encoding, rows, cols, a, b); });
        });
}

// What assay.quantize and assay.cast of a plain PyTorch tensor call. Memory comes as addresses and sizes,
// which cost less than an array does; the caller holds the tensors.
void define_prepared_lines(nb::module_& m) {
  nb::class_<python::PreparedLine>(m, "PreparedLine")
      .def("can_run", &python::PreparedLine::can_run)
      .def("run", [](const python::PreparedLine& line, const std::vector<uintptr_t>& addresses,
                     const std::vector<size_t>& bytes, int threads) {
        std::vector<std::span<std::byte>> memory;
        memory.reserve(addresses.size());
        for (size_t i = 0; i < std::min(addresses.size(), bytes.size()); ++i)
          memory.emplace_back(reinterpret_cast<std::byte*>(addresses[i]), bytes[i]);
        const nb::gil_scoped_release release;
        return line.run(memory, threads);
      });
  m.def("prepared_line", [](const std::string& line) { return made<python::PreparedLine>(line); });
}

}  // namespace

NB_MODULE(_assay, m) {
  m.attr("version") = build::kVersion;
  m.def("line", [](const std::string& line) { return answer([&] { return python::line_facts(line); }); });
  m.def("keys", [] { return json::dump(python::key_table()); });
  m.def("suite", [](const std::string& name) { return answer([&] { return python::suite_lines(name); }); });
  nb::class_<Memory>(m, "Memory")
      .def("__init__", [](Memory* self, uintptr_t address, size_t bytes, nb::object owner) {
        if (!address && bytes)
          throw nb::buffer_error("expected an array whose bytes lie in the CPU's memory");
        new (self) Memory{address, bytes, std::move(owner)};
      });
  m.def("array_facts", &array_facts);
  m.def("array_bytes", &array_bytes);
  define_cases(m);
  define_prepared_lines(m);
  nb::class_<python::Dumped>(m, "Dumped")
      .def("facts", [](const python::Dumped& d) { return json::dump(d.facts()); })
      .def("bytes", [](nb::handle_t<python::Dumped> self, size_t c, size_t p) {
        return view_of(nb::cast<const python::Dumped&>(self).bytes(c, p), self);
      });
  nb::class_<python::Vectors>(m, "Vectors")
      .def("facts", [](const python::Vectors& v) { return json::dump(v.facts()); })
      .def("bytes", [](nb::handle_t<python::Vectors> self, size_t vector, size_t part) {
        return view_of(nb::cast<const python::Vectors&>(self).bytes(vector, part), self);
      });
  m.def("vectors", [](const std::string& folder) { return made<python::Vectors>(folder); });
  m.def("load", [](const std::vector<std::string>& paths) { return made<python::Dumped>(paths); });
}
