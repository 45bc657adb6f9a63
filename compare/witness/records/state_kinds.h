// What the records of tensors, ranks and optimizers call a kind of tensor, and how they show one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compare/witness/records/given.h"
#include "fixtures/json.h"
#include "training/base/session.h"
#include "training/formats/storage.h"

namespace assay {

// "CS", "CS5" (E5M2), "DS", "MX", "BLK1", "BLK2", "FP4p" (1-D), "FP4w" (2-D), "FP4rs" (row scaled), "ID", and
// "H(rows|columns)" or "H(rows|columns;rwdq)" of two of them. A new object each time.
training::QuantizerPtr quantizer_of_kind(std::string_view kind, const std::string& where);
training::QuantizerPtr quantizer_of_kind(const Given& kind);
// "rc", "r", "c".
training::Usages usages_in(const Given& given, std::string_view key = "present");
// A process of the architecture in "arch", non_TN unless it says TN_only. Its kernels are as the recording
// process's stand-ins: they write a transpose alone.
training::Session session_of(const Given& given, Subject& subject);

// {"_data": {shape, dtype} or null, ...}, with the class and, of per-tensor FP8, _transpose_invalid; a hybrid
// has its children under "row" and "col".
json::Value buffers_shown(const training::StoragePtr&);
// Buffers that exist by the records' names ("row._data"), in the order of the class.
std::vector<std::pair<std::string, training::ArrayPtr>> named_buffers(training::Storage&);

}  // namespace assay
