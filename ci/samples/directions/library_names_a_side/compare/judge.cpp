#include "reference/subject.h"
