// For programs of users (docs/library.md): runs the cases of a suite. Declared in compare/judge/cases.h.
#pragma once
#include "compare/judge/cases.h"
