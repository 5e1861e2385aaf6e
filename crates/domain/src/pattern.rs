//! The parts of the patterns in the OpenAPI document. A pattern stands beside the parser of its texts; it accepts every
//! text that the parser accepts, and as few others as a pattern can say.
//!
//! The patterns are regular expressions that ECMA 262, Python and Rust understand alike. Therefore they name the
//! characters of white space instead of `\s`, which means others in each of them, and they look neither ahead nor back.

/// The members of a class: white space, as [`char::is_whitespace`].
macro_rules! white {
    () => {
        r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
    };
}

/// A character that is no control character, as [`char::is_control`], and none of these members of a class.
macro_rules! plain {
    ($more:literal) => {
        concat!("[^", $more, r"\x00-\x1f\x7f-\x9f]")
    };
}

/// A character that is neither white space nor a control character, and none of these members of a class.
macro_rules! visible {
    ($more:literal) => {
        concat!("[^", $more, crate::pattern::white!(), r"\x00-\x1f\x7f-\x9f]")
    };
}

/// A whole text, with white space around it.
macro_rules! trimmed {
    ($($part:expr),+) => {
        concat!("^[", crate::pattern::white!(), "]*(", $($part),+, ")[", crate::pattern::white!(), "]*$")
    };
}

/// A text of 1 to 255 characters without control characters, white space around it, and these members of a class.
macro_rules! label {
    ($more:literal) => {
        concat!(
            crate::pattern::visible!($more),
            "(",
            crate::pattern::plain!($more),
            "{0,253}",
            crate::pattern::visible!($more),
            ")?"
        )
    };
}

/// A host name: labels of ASCII, which may have hyphens and underscores, or a name that IDNA or percent-encoding makes
/// one of.
macro_rules! host_name {
    () => {
        concat!(
            r"([A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?|",
            crate::pattern::visible!(r"#/:<>?@\[\\\]^|"),
            "*[^",
            crate::pattern::white!(),
            r"\x00-$&-\x9f]",
            crate::pattern::visible!(r"#/:<>?@\[\\\]^|"),
            "*)"
        )
    };
}

/// The members of a class: white space, as [`char::is_whitespace`].
pub const WHITE_SPACE: &str = white!();

/// A text with the characters of an IPv6 address.
macro_rules! ipv6 {
    () => {
        "[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f.:]*"
    };
}

pub(crate) use {host_name, ipv6, label, plain, trimmed, visible, white};
