#include "fast/gemm_lt.h"

#include <cublasLt.h>

#include <stdexcept>

namespace assay {
namespace {

constexpr int kOffers = 32;  // algorithms that the heuristic is asked for

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string("cuBLASLt, ") + what + ": " + cublasLtGetStatusName(status));
}

// One of the library's opaque objects.
template <class T, cublasStatus_t (*kDestroy)(T)> class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (object_) (void)kDestroy(object_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* out() { return &object_; }
  operator T() const { return object_; }

 private:
  T object_ = nullptr;
};
using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Matmul = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(Encoding e) {
  switch (e) {
    case Encoding::f32: return CUDA_R_32F;
    case Encoding::bf16: return CUDA_R_16BF;
    case Encoding::f16: return CUDA_R_16F;
    case Encoding::e4m3: return CUDA_R_8F_E4M3;
    case Encoding::e5m2: return CUDA_R_8F_E5M2;
    case Encoding::e2m3:
    case Encoding::e3m2:
    case Encoding::e2m1:
    case Encoding::e8m0:
    case Encoding::u8:
    case Encoding::u32: break;
  }
  throw std::invalid_argument("cuBLASLt has no operand of " + std::string(info(e).name));
}

}  // namespace

struct LtCall::State {
  State(const LtPlan& plan, const LtMemory& memory) : plan_(plan), memory_(memory) {
    check(cublasLtCreate(handle_.out()), "making a handle");
    check(cublasLtMatmulDescCreate(matmul_.out(),
                                   plan.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "describing the product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(plan.fast_accumulation));
    scale(plan.a.scale, memory.a_scale, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
          CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
    scale(plan.b.scale, memory.b_scale, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
          CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
    if (plan.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(plan.out));
    }
    const auto describe = [](Matrix& matrix, Encoding e, int64_t rows, int64_t cols) {
      check(cublasLtMatrixLayoutCreate(matrix.out(), type_of(e), static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(cols), rows),
            "describing a matrix");
    };
    describe(a_, plan.a.encoding, plan.k, plan.m);
    describe(b_, plan.b.encoding, plan.k, plan.n);
    describe(c_, narrow() ? Encoding::bf16 : plan.out, plan.m,
             plan.n);  // beside an FP8 D a C of 16 bits is described, and none is read
    describe(d_, plan.out, plan.m, plan.n);
    choose();
  }

  void launch() const {
    check(cublasLtMatmul(handle_, matmul_, &plan_.alpha, memory_.a, a_, memory_.b, b_, &plan_.beta,
                         narrow() ? nullptr : memory_.c, c_, memory_.d, d_, &algorithms_[*choice_], nullptr,
                         0, nullptr),
          "multiplying");
  }

  bool narrow() const { return info(plan_.out).bits == 8; }
  template <class T> void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(matmul_, attribute, &value, sizeof value), "setting an attribute");
  }
  void scale(LtScale scale, const void* pointer, cublasLtMatmulDescAttributes_t mode,
             cublasLtMatmulDescAttributes_t where) {
    if (scale == LtScale::none) return;
    set(mode, scale == LtScale::tensor         ? CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
              : scale == LtScale::outer_vector ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
              : scale == LtScale::vector_128   ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                               : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
    set(where, pointer);
  }

  // No workspace and no reduction: what is offered splits no K, and its bits do not depend on what the caller
  // has to spare.
  void choose() {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.out()), "making a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
            "setting a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{0});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
    for (auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(attribute, static_cast<uint32_t>(kLtAlignment));
    std::vector<cublasLtMatmulHeuristicResult_t> results(kOffers);
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, matmul_, a_, b_, c_, d_, preference,
                                                                 kOffers, results.data(), &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
    check(status, "asking for algorithms");
    for (int i = 0; i < found; ++i) {
      if (results[static_cast<size_t>(i)].state != CUBLAS_STATUS_SUCCESS) continue;
      algorithms_.push_back(results[static_cast<size_t>(i)].algo);
      offered_.push_back(config_of(algorithms_.back()));
    }
    choice_ = lt_choice(plan_, offered_);
  }
  static LtConfig config_of(const cublasLtMatmulAlgo_t& algorithm) {
    const auto get = [&]<class T>(cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
      size_t written = 0;
      check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written),
            "reading a configuration");
      return static_cast<int>(value);
    };
    return {get(CUBLASLT_ALGO_CONFIG_ID, int32_t{}),
            get(CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{}),
            get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{}),
            get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, uint32_t{}),
            get(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{}),
            get(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{}),
            get(CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{}),
            get(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, uint16_t{}),
            get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t{})};
  }

  LtPlan plan_;
  LtMemory memory_;
  Handle handle_;
  Matmul matmul_;
  Matrix a_, b_, c_, d_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
  std::vector<LtConfig> offered_;
  std::optional<size_t> choice_;
};

namespace {

LtMemory placeholders() {
  void* const p = reinterpret_cast<void*>(kLtAlignment);
  return {p, p, p, p, p, p, p};
}

}  // namespace

LtCall::LtCall(const LtPlan& plan, const LtMemory& memory) : state_(std::make_unique<State>(plan, memory)) {}
LtCall::LtCall(const LtPlan& plan) : LtCall(plan, placeholders()) {}
LtCall::~LtCall() = default;
const std::vector<LtConfig>& LtCall::offered() const { return state_->offered_; }
std::optional<size_t> LtCall::choice() const { return state_->choice_; }
std::string LtCall::name() const {
  return "cublasLt " + std::to_string(cublasLtGetVersion()) + " " +
         to_text(state_->offered_[*state_->choice_]);
}
void LtCall::launch() const { state_->launch(); }

}  // namespace assay
