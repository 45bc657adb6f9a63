#include "training/modules/tensor_parallel.h"

#include "training/base/f32.h"
#include "training/ranks/gather.h"

namespace assay::training {

bool meets(const GroupPtr& group) { return group && group->all_gather && group->size > 1; }

Tensorlike gather(Session& session, const Tensorlike& shard, const GroupPtr& group,
                  const QuantizerPtr& quantizer, const std::string& who, bool codes) {
  session.tensor_name = who;
  Piece piece;
  if (const StoragePtr* s = std::get_if<StoragePtr>(&shard)) piece = *s;
  else piece = std::get<ArrayPtr>(shard);
  const bool whole_first = quantizer && !codes && std::holds_alternative<ArrayPtr>(piece);
  Piece out = gather_along_first_dim(session, piece, *group, whole_first ? nullptr : quantizer).tensor;
  if (whole_first) out = quantizer->quantize(session, std::get<ArrayPtr>(out));
  if (const StoragePtr* s = std::get_if<StoragePtr>(&out)) return *s;
  return std::get<ArrayPtr>(out);
}

ArrayPtr reduced(Session& session, const GroupPtr& group, const ArrayPtr& partial, const std::string& who,
                 bool scatter) {
  session.collectives.push_back({scatter ? "reduce_scatter" : "all_reduce", who, group->name});
  ArrayPtr sum;
  for (const ArrayPtr& part : group->all_gather(clone(partial)))
    sum = sum ? add(session, sum, part) : cast(session, part, DType::float32);
  sum = cast(session, sum, partial->dtype);
  if (!scatter) return sum;
  const int64_t rows = sum->shape[0] / group->size;
  return clone(slice(sum, 0, group->rank * rows, (group->rank + 1) * rows));
}

}  // namespace assay::training
