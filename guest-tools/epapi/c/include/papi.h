/* For programs that include PAPI's own header: ePAPI with PAPI's names. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define EPAPI_PLAIN_NAMES
#include "epapi.h"
