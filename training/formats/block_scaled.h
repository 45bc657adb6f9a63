// What the storages of blockwise FP8, MXFP8 and NVFP4 share.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/encoding.h"
#include "contract/problem.h"
#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/session.h"
#include "training/formats/storage.h"

namespace assay::training {

// What the three block-scaled formats share: data and scales by direction.
class BlockScaledStorage : public Storage {
 public:
  Encoding element = Encoding::e4m3;
  ArrayPtr rowwise_data, rowwise_scale_inv, columnwise_data, columnwise_scale_inv;
  bool with_gemm_swizzled_scales = false;
  std::vector<Field> fields() override;
  Usages present() const override { return {rowwise_data != nullptr, columnwise_data != nullptr}; }
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
  std::vector<std::string> fsdp_buffer_fields()
      const override;  // data and scales of the directions that exist

 protected:
  // The directions that shall exist after update_usage.
  Usages wanted(std::optional<bool> rowwise, std::optional<bool> columnwise) const;
  // The codes of one direction as a plain tensor.
  ArrayPtr decoded(Session&, const assay::Quantizer& settings, Direction, std::optional<DType> to) const;
};

}  // namespace assay::training
