#include "cuda/emu.h"
