  #  include "fixtures/fill.h"
