using namespace two;
int second() { return f(1); }
