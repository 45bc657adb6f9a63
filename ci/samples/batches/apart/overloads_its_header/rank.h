#pragma once
int rank(double x);
