namespace {
struct Row {
  int n;
};
}  // namespace
int first() { return Row{1}.n; }
