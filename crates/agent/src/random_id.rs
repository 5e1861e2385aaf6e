//! Random ids.

use rustix::rand::{GetRandomFlags, getrandom};

/// The characters of an id after its first letter.
const ID_CHARACTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH: usize = 24;

/// Returns a random id: a letter, then letters and digits.
pub(crate) fn new_id() -> String {
    let mut random = [0_u8; ID_LENGTH];
    // The kernel always fills so few bytes.
    let _ = getrandom(&mut random, GetRandomFlags::empty());
    let letters = ID_CHARACTERS.len() - 10;
    let character = |(at, byte): (usize, &u8)| {
        let choices = if at == 0 { letters } else { ID_CHARACTERS.len() };
        char::from(ID_CHARACTERS[usize::from(*byte) % choices])
    };
    random.iter().enumerate().map(character).collect()
}
