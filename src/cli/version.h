// The product's version, one place. `sandbar version` prints it.
#pragma once

namespace sandbar::cli {
inline constexpr char kVersion[] = "0.1.0";
}
