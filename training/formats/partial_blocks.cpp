#include "training/formats/partial_blocks.h"

#include <algorithm>

#include "training/formats/kernel_quantizer.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

bool is_for_stand_ins(const Session& session, const Array& x, int64_t grain, std::optional<F32Bits> noop) {
  return session.stand_ins && !noop && x.count() > 0 && !multiples_of(x.shape, grain);
}

void fill_from_padded(Session& session, const Quantizer& q, const ArrayPtr& x, int64_t grain, Storage& s,
                      Storage& padded, const std::function<void(const ArrayPtr& whole)>& fill) {
  const Shape m = flattened(x->shape);
  fill(padded_with_zeros(view(contiguous(x), {m.rows, m.cols}),
                         {round_up(m.rows, grain), round_up(m.cols, grain)}));
  kernels::coerce(session, s, allocated(q, x->shape, q.usages(), x->dtype, session.tn_only()));
  const std::vector<Field> from = padded.fields();
  size_t i = 0;
  for (const Field& f : s.fields()) {
    const ArrayPtr& source = *from[i++].slot;
    if (!*f.slot) continue;
    const auto matrix = [](const ArrayPtr& a) {
      const Shape shape = flattened(a->shape);
      return view(a, {shape.rows, shape.cols});
    };
    const ArrayPtr to = matrix(*f.slot), all = matrix(source);
    const int64_t rows = std::min(to->shape[0], all->shape[0]), cols = std::min(to->shape[1], all->shape[1]);
    copy_into(*slice(slice(all, 0, 0, rows), 1, 0, cols), *slice(slice(to, 0, 0, rows), 1, 0, cols));
  }
}

}  // namespace assay::training
