namespace assay {
namespace {

struct Held {};

}  // namespace

struct Matrix : Base {
  int held = 0;
};

}  // namespace assay
