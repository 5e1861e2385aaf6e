//! The meaning of a page in a login.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::{Act, AllowedHosts, Handle, Key, Known, Reading, rules};
use crate::text_enum::text_enum;

/// The progress of one login. A page without a password field means something else before the password was sent than after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A user name was sent.
    pub identifier: bool,
    /// A password was sent.
    pub password: bool,
    /// A code was sent.
    pub code: bool,
    /// A choice was made: an SSO provider, an account, a method.
    pub choice: bool,
    /// A step elsewhere was waited for.
    pub external: bool,
    /// A captcha was solved by the person.
    pub captcha: bool,
}

impl Progress {
    /// Returns whether anything was done.
    #[must_use]
    pub const fn any(self) -> bool {
        self.identifier || self.password || self.code || self.choice || self.external
    }

    /// Returns the progress after these fields were sent.
    #[must_use]
    pub fn sent(mut self, fields: &[Field]) -> Self {
        for field in fields {
            match field.kind {
                FieldKind::Identifier => self.identifier = true,
                FieldKind::Password => self.password = true,
                FieldKind::Code | FieldKind::TotpCode => self.code = true,
                FieldKind::TotpSecret | FieldKind::Text => {}
            }
        }
        self
    }
}

/// The meaning of a page: what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Understanding {
    /// Values; it may offer choices beside.
    Fields(PageQuestion),
    /// A choice, and no value.
    Choices(PageQuestion),
    /// A step that only a person can do elsewhere. Afterwards the page goes on by itself.
    External(External),
    /// Nothing: the user is logged in.
    LoggedIn {
        /// The URL of the page.
        url: String,
    },
    /// A solved captcha, before anything else.
    Captcha {
        /// The kind of the captcha.
        kind: String,
    },
    /// Nothing: it refuses, and offers no way on.
    Refused(Refusal),
    /// A step that needs no person.
    Step(Step),
    /// Time: it is loading.
    Busy,
    /// Nothing may be filled in, because the host is not allowed.
    NotAllowed {
        /// The host, or `file:`.
        host: String,
    },
    /// It is unknown.
    NotUnderstood,
}

/// The question of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageQuestion {
    /// The fields, in the order in which they are filled in.
    pub fields: Vec<Field>,
    /// The choices, or the ways instead of the fields.
    pub choices: Vec<Choice>,
    /// The error that the page shows.
    pub refusal: Option<Refusal>,
    /// The boxes to tick before sending: "remember me", the terms of use.
    pub ticks: Vec<Handle>,
    /// The button that sends; without one, the Enter key sends.
    pub submit: Option<Handle>,
    /// An unsolved captcha beside the fields, without which nothing is accepted.
    pub captcha: Option<String>,
}

/// A field that a page asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key of the field, the same in each reading of a login: `password`, `code`, `text-company`.
    pub key: String,
    /// The name under which its value is stored: `username`, `email`, `phone`, `password`, `code`, or its own.
    pub reference: String,
    /// Its purpose.
    pub kind: FieldKind,
    /// Its type of input.
    pub input: InputKind,
    /// Its label on the page, or a default label.
    pub label: String,
    /// Its placeholder.
    pub placeholder: Option<String>,
    /// Its description on the page, such as where a code was sent.
    pub hint: Option<String>,
    /// Its CSS selector, for people.
    pub selector: String,
    /// Whether it is required.
    pub required: bool,
    /// How a code is sent.
    pub mfa: Option<MfaKind>,
    /// One box, or one for each character.
    pub boxes: Vec<Handle>,
    /// The options of a list; empty for any other field.
    pub options: Vec<String>,
    /// The origin of its frame.
    pub origin: String,
}

text_enum! {
    /// The purpose of a field.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum FieldKind {
        /// A user name, an e-mail address, a phone number.
        Identifier => "identifier",
        /// The password.
        Password => "password",
        /// A code that was sent to a person.
        Code => "code",
        /// A code of an authenticator app.
        TotpCode => "totp_code",
        /// The secret of an authenticator app.
        TotpSecret => "totp_secret",
        /// Any other value: a company, a tenant, a date.
        Text => "text",
    }
}

text_enum! {
    /// The type of input of a field.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum InputKind {
        /// A line of text.
        Text => "text",
        /// An e-mail address.
        Email => "email",
        /// A password.
        Password => "password",
        /// A phone number.
        Tel => "tel",
        /// A number.
        Number => "number",
        /// A URL.
        Url => "url",
        /// A code.
        Code => "code",
        /// A code of an authenticator app.
        Totp => "totp",
    }
}

/// A choice that a page offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The key of the choice, the same in each reading of a login.
    pub key: String,
    /// Its label on the page.
    pub label: String,
    /// Its description on the page.
    pub description: Option<String>,
    /// Its kind.
    pub kind: ChoiceKind,
    /// The kind of a second factor.
    pub mfa: Option<MfaKind>,
    /// The target of a second factor, as far as the page shows it: `••• 42`.
    pub target: Option<String>,
    /// The name of an SSO provider: `google`.
    pub provider: Option<String>,
    /// The origin of the frame of an account.
    pub origin: String,
    /// The handle to press.
    pub handle: Handle,
    /// The button to press afterwards, if choosing alone does nothing.
    pub confirm: Option<Handle>,
    /// Its CSS selector, for people.
    pub selector: String,
    /// Its XPath, for people.
    pub xpath: String,
}

text_enum! {
    /// The kind of a choice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ChoiceKind {
        /// Second factors.
        MfaMethod => "mfa_method",
        /// SSO providers.
        SsoProvider => "sso_provider",
        /// Ways to sign in.
        SignInMethod => "sign_in_method",
        /// Ways to prove an identity.
        AuthMethod => "auth_method",
        /// Kinds of identifiers.
        IdentifierMethod => "identifier_method",
        /// Accounts.
        Account => "account",
        /// Any other choice.
        Other => "other",
    }
}

text_enum! {
    /// How a second factor is sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MfaKind {
        /// By text message.
        Sms => "sms",
        /// By phone call.
        Call => "call",
        /// By e-mail.
        Email => "email",
        /// By an authenticator app.
        Totp => "totp",
        /// As a prompt on another device.
        Push => "push",
        /// The password, instead.
        Password => "password",
        /// "Another way".
        Switch => "switch",
    }
}

/// A step that a person does elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The text of the page, with a number to compare.
    pub message: String,
    /// How it is sent.
    pub mfa: Option<MfaKind>,
    /// The ways instead of it.
    pub choices: Vec<Choice>,
}

/// The refusal of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error in the page's own words.
    pub website_error: String,
    /// Its meaning.
    pub kind: RefusalKind,
}

/// The meaning of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The values are wrong.
    Rejected,
    /// The code is wrong or has expired.
    CodeRejected,
    /// The account is locked or disabled.
    Locked,
    /// Too many attempts; a later one may succeed.
    RateLimited,
    /// The site itself failed.
    SiteFailed,
    /// Another reason.
    Other,
}

/// A step that needs no person.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its kind.
    pub kind: StepKind,
    /// The actions.
    pub acts: Vec<Act>,
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        // The acts of a step hold no secrets.
        self.kind == other.kind && format!("{:?}", self.acts) == format!("{:?}", other.acts)
    }
}

impl Eq for Step {}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Dismisses a cookie banner with the least consent that is offered.
    CookieBanner,
    /// Dismisses another dialog.
    Dialog,
    /// Opens the login from a public page.
    OpenLogin,
    /// Answers "stay signed in?".
    StaySignedIn,
    /// Declines an offer between login and site: a passkey, a recovery number.
    Decline,
    /// Presses the only button of a page that asks for nothing.
    Continue,
}

/// A required value is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no value for {key}")]
pub struct Missing {
    /// The field's key.
    pub key: String,
}

impl PageQuestion {
    /// Returns the field of a key.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.key == key)
    }

    /// Returns the actions that fill in the values, by key, and send them.
    ///
    /// # Errors
    /// [`Missing`] for the first required field without a value.
    pub fn answer(&self, values: &BTreeMap<String, SecretString>) -> Result<Vec<Act>, Missing> {
        let mut acts = Vec::new();
        let mut last = None;
        for field in &self.fields {
            match values.get(&field.key) {
                Some(value) => {
                    acts.push(field.fill(value));
                    last = field.boxes.last().cloned();
                }
                None if field.required => return Err(Missing { key: field.key.clone() }),
                None => {}
            }
        }
        acts.extend(self.ticks.iter().map(|what| Act::Check { what: what.clone(), on: true }));
        acts.push(match &self.submit {
            Some(what) => Act::Click { what: what.clone(), window: false },
            None => Act::Press { on: last, key: Key::Enter },
        });
        Ok(acts)
    }

    /// Returns the actions that take a choice; `None` if there is none of that key.
    #[must_use]
    pub fn choose(&self, key: &str) -> Option<Vec<Act>> {
        self.choices.iter().find(|choice| choice.key == key).map(Choice::choose)
    }
}

impl Field {
    fn fill(&self, value: &SecretString) -> Act {
        let (text, origin) = (value.clone(), self.origin.clone());
        match (self.boxes.as_slice(), self.kind) {
            ([list], _) if !self.options.is_empty() => {
                use secrecy::ExposeSecret as _;
                Act::Choose { from: list.clone(), option: value.expose_secret().to_owned(), origin }
            }
            ([one], FieldKind::Identifier | FieldKind::Password | FieldKind::Text | FieldKind::TotpSecret) => {
                Act::Fill { into: one.clone(), text, origin }
            }
            (boxes, _) => Act::FillCode { into: boxes.to_vec(), code: text, origin },
        }
    }
}

impl Choice {
    /// Returns the actions that take the choice.
    #[must_use]
    pub fn choose(&self) -> Vec<Act> {
        let window = self.kind == ChoiceKind::SsoProvider;
        let click = |what: &Handle| Act::Click { what: what.clone(), window };
        std::iter::once(&self.handle).chain(&self.confirm).map(click).collect()
    }
}

/// Returns what the page wants in a login at a site with these hosts. A pure function.
#[must_use]
pub fn understand(reading: &Reading, known: &Known, hosts: &AllowedHosts) -> Understanding {
    rules::understand(reading, known, hosts)
}
