int factor_of(Encoding e) {
  switch (e) {
    case Encoding::e4m3: return 8;
    default: return 2;
  }
}
