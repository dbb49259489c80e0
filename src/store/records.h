// What is stored, as plain values: all of it. The store does not know what they mean; sandbox/ does.
#pragma once

#include "store/directory_records.h"
#include "store/journal_records.h"
#include "store/record_values.h"
