//! Login pages: reading, understanding and filling them in. The rules know no product or site, only words and the
//! attributes that forms have for browsers and screen readers.
//!
//! [`LoginPages`] reads a page as a [`Reading`] and performs [`Act`]s. In between, [`understand`] is a pure function.

mod hosts;
mod model;
mod ports;
mod rules;
mod understanding;

pub use hosts::{AllowedHosts, BadPattern, HostPattern, WITHOUT_LISTING};
pub use model::{
    Act, Button, ButtonKind, Captcha, Frame, Handle, Input, Key, Known, Layer, MAX_BUTTONS, MAX_FRAMES, MAX_INPUTS,
    MAX_LABEL, MAX_LAYERS, MAX_OPTIONS, MAX_TEXT, MAX_TEXTS, MAX_URL, Mark, Reading, Text, TextKind, clean,
};
#[cfg(feature = "mocks")]
pub use ports::MockLoginPages;
pub use ports::{LoginPageError, LoginPages, ReadCondition};
pub use rules::understand;
pub use understanding::{
    Choice, ChoiceKind, External, Field, FieldKind, InputKind, MfaKind, Missing, PageQuestion, Progress, Refusal,
    RefusalKind, Step, StepKind, Understanding,
};
