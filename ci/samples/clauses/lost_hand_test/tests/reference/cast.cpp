TEST(Cast, Ties) {}
