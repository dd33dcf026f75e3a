#pragma once
#define CELL      1
#define MEBIBYTE  0x100000
#define TEXT(it)  #it
#define STRING(it) TEXT(it)
