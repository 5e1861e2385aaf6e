//! The meaning of a page in a login.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::{Act, Handle, Key};
use crate::text_enum::text_enum;

/// The progress of one login. A page without a password field means something else after the password was sent.
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
    /// A step elsewhere was awaited.
    pub external: bool,
    /// A captcha was solved by the person.
    pub captcha: bool,
}

impl Progress {
    /// Returns whether any step was taken, not counting a captcha.
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

/// The meaning of a page: what it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Understanding {
    /// The page requests values, and may offer choices too.
    Fields(PageQuestion),
    /// The page requests only a choice.
    Choices(PageQuestion),
    /// The page waits for a step that a person must do elsewhere. Then it continues by itself.
    External(External),
    /// The user is logged in.
    LoggedIn {
        /// The URL of the page.
        url: String,
    },
    /// A captcha must be solved before anything else.
    Captcha {
        /// The kind of the captcha.
        kind: String,
    },
    /// The page shows an error and offers no way to continue.
    Refused(Refusal),
    /// The page needs a step that needs no person.
    Step(Step),
    /// The page is loading.
    Busy,
    /// The page may not be filled in, because its host is not allowed.
    NotAllowed {
        /// The host, or a scheme such as `file:`.
        host: String,
    },
    /// The meaning is unknown.
    NotUnderstood,
}

/// The question of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageQuestion {
    /// The fields, in the order in which they are filled in.
    pub fields: Vec<Field>,
    /// The choices, or the alternatives to the fields.
    pub choices: Vec<Choice>,
    /// The error that the page shows.
    pub refusal: Option<Refusal>,
    /// The checkboxes to tick before submitting: "remember me", the terms of use.
    pub ticks: Vec<Handle>,
    /// The button that submits the form; `None`: the Enter key submits it.
    pub submit: Option<Handle>,
    /// The kind of an unsolved captcha of the form, which must be solved before the page accepts the fields.
    pub captcha: Option<String>,
}

/// A field of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key of the field, the same in each reading of a login: `password`, `code`, `text-company`.
    pub key: String,
    /// The name under which the value is stored: `username`, `email`, `phone`, `password`, `code`, or another name.
    pub reference: String,
    /// The purpose.
    pub kind: FieldKind,
    /// The type of input.
    pub input: InputKind,
    /// The label on the page, or a default label.
    pub label: String,
    /// The placeholder.
    pub placeholder: Option<String>,
    /// The description on the page, such as where a code was sent.
    pub hint: Option<String>,
    /// The CSS selector, for people.
    pub selector: String,
    /// Whether it is required.
    pub required: bool,
    /// The channel of a code.
    pub mfa: Option<MfaKind>,
    /// One input, or one for each character.
    pub boxes: Vec<Handle>,
    /// The options of a list; empty for any other field.
    pub options: Vec<String>,
    /// The origin of the frame.
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
    /// The label on the page.
    pub label: String,
    /// The description on the page.
    pub description: Option<String>,
    /// The kind.
    pub kind: ChoiceKind,
    /// The kind of a second factor.
    pub mfa: Option<MfaKind>,
    /// The target of a second factor, as far as the page shows it: `••• 42`.
    pub target: Option<String>,
    /// The name of an SSO provider: `google`.
    pub provider: Option<String>,
    /// The origin of the frame of an account.
    pub origin: String,
    /// The element to click.
    pub handle: Handle,
    /// The button to click afterwards, if the choice must be confirmed.
    pub confirm: Option<Handle>,
    /// The CSS selector, for people.
    pub selector: String,
    /// The XPath, for people.
    pub xpath: String,
}

text_enum! {
    /// The kind of a choice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ChoiceKind {
        /// A second factor.
        MfaMethod => "mfa_method",
        /// An SSO provider.
        SsoProvider => "sso_provider",
        /// A way to sign in.
        SignInMethod => "sign_in_method",
        /// A way to prove an identity: a security key, a backup code.
        AuthMethod => "auth_method",
        /// A kind of identifier.
        IdentifierMethod => "identifier_method",
        /// An account.
        Account => "account",
        /// Any other choice.
        Other => "other",
    }
}

text_enum! {
    /// The channel of a second factor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MfaKind {
        /// A text message.
        Sms => "sms",
        /// A phone call.
        Call => "call",
        /// An e-mail.
        Email => "email",
        /// An authenticator app.
        Totp => "totp",
        /// A prompt on another device.
        Push => "push",
        /// The password instead of a code.
        Password => "password",
        /// A link to other channels: "Another way".
        Switch => "switch",
    }
}

/// A step that a person does elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The text of the page, with the number to compare if there is one.
    pub message: String,
    /// The channel of the step.
    pub mfa: Option<MfaKind>,
    /// The alternatives to the step.
    pub choices: Vec<Choice>,
}

/// An error that a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The text of the error on the page.
    pub website_error: String,
    /// The meaning of the error.
    pub kind: RefusalKind,
}

/// The meaning of an error that a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The values are wrong.
    Rejected,
    /// The code is wrong or has expired.
    CodeRejected,
    /// The account is locked or disabled.
    Locked,
    /// Too many attempts; a later attempt may succeed.
    RateLimited,
    /// The site itself failed.
    SiteFailed,
    /// Another reason.
    Other,
}

/// A step that needs no person.
#[derive(Clone, Debug)]
pub struct Step {
    /// The kind.
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
    /// Dismisses a cookie banner with the least consent that it offers.
    CookieBanner,
    /// Dismisses another dialog.
    Dialog,
    /// Opens the login from a public page.
    OpenLogin,
    /// Answers "stay signed in?" with yes.
    StaySignedIn,
    /// Declines an offer after the login, such as a passkey or a recovery number.
    Decline,
    /// Presses the button that continues on a page that requests nothing.
    Continue,
}

/// The error of a missing required value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no value for {key}")]
pub struct Missing {
    /// The key of the field.
    pub key: String,
}

impl PageQuestion {
    /// Returns the field with a key.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.key == key)
    }

    /// Returns the actions that fill in the values, by key, and submit them.
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

    /// Returns the actions that select a choice; `None` if no choice has the key.
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
    /// Returns the actions that select the choice.
    #[must_use]
    pub fn choose(&self) -> Vec<Act> {
        let window = self.kind == ChoiceKind::SsoProvider;
        let click = |what: &Handle| Act::Click { what: what.clone(), window };
        std::iter::once(&self.handle).chain(&self.confirm).map(click).collect()
    }
}
