#include "training/modules/step.h"

#include "training/formats/ops.h"

namespace assay::training {

std::vector<NamedArray> snapshot(const Tensorlike& tensor) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&tensor)) return {{"plain", *x ? clone(*x) : nullptr}};
  std::vector<NamedArray> out;
  for (const Field& field : std::get<StoragePtr>(tensor)->fields())
    out.push_back({field.name, *field.slot ? clone(*field.slot) : nullptr});
  return out;
}

void write_back(Session& session, Parameter& parameter, const ArrayPtr& master) {
  const ArrayPtr value = cast(session, master, parameter.dtype);
  if (ArrayPtr* x = std::get_if<ArrayPtr>(&parameter.value)) {
    copy_into(*view(value, (*x)->shape), **x);
    return;
  }
  Storage& storage = *std::get<StoragePtr>(parameter.value);
  session.tensor_name = parameter.name;
  refresh(session, value, storage);
}

std::optional<std::string> stale_buffer(Session& session, const Parameter& parameter,
                                        const ArrayPtr& master) {
  const ArrayPtr value = cast(session, master, parameter.dtype);
  const ArrayPtr* x = std::get_if<ArrayPtr>(&parameter.value);
  if (x)
    return equal_bytes(*view(value, (*x)->shape), **x) ? std::nullopt : std::optional<std::string>("plain");
  Storage& storage = *std::get<StoragePtr>(parameter.value);
  const QuantizerPtr fresh = storage.quantizer->copy();
  if (!fresh->is_requantization_safe())
    throw SemanticError(ErrorClass::value_error,
                        "'" + parameter.name +
                            "' cannot be checked for stale buffers: quantizing it again gives other bytes");
  fresh->set_usage(true, true);
  const StoragePtr want = fresh->quantize(session, value);
  const std::vector<Field> got = storage.fields(), expected = want->fields();
  for (const Field& field : got)
    for (const Field& other : expected)
      if (field.name == other.name && *field.slot && *other.slot && !equal_bytes(**field.slot, **other.slot))
        return field.name;
  const Usages present = storage.present(), wanted = storage.quantizer->usages();
  if (wanted.rowwise && !present.rowwise) return "rowwise: absent";
  if (wanted.columnwise && !present.columnwise) return "columnwise: absent";
  return std::nullopt;
}

}  // namespace assay::training
