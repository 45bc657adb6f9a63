namespace {
constexpr int kFirst = 1;
}  // namespace
int first() { return kFirst; }
