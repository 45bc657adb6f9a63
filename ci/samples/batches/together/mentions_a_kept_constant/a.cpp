namespace {
constexpr int kFormats[] = {1};
}  // namespace
int first() { return kFormats[0]; }
