//! The sizes of floods.

/// The variable with which floods have their full size.
const FULL_SIZE: &str = "CASEMENT_TEST_FULL_SIZE";

/// Returns how much a flood sends: all of it with the variable `CASEMENT_TEST_FULL_SIZE=1`, and otherwise a tenth.
pub fn flood(full_size: u64) -> u64 {
    if std::env::var(FULL_SIZE).is_ok_and(|value| value == "1") { full_size } else { full_size / 10 }
}
