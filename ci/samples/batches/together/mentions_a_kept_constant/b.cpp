namespace assay {
int second() {
  for (int f : kFormats) return f;
  return 0;
}
}  // namespace assay
