namespace {
int rank(int x) { return x; }
}  // namespace
int first(int x) { return rank(x); }
