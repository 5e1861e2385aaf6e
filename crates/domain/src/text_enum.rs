//! Enumerations whose values have a fixed text.

/// Defines an enumeration with `ALL`, its values in order, and `as_str`, the text of each value in the wire format and
/// in the store.
macro_rules! text_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident => $text:literal,)+ }
    ) => {
        $(#[$meta])*
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// All values, in order.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Returns the text of the value in the wire format and in the store.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

pub(crate) use text_enum;
