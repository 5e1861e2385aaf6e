//! What a page wants of whoever logs in.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::{Act, AllowedHosts, Handle, Key, Known, Reading, rules};
use crate::text_enum::text_enum;

/// What has been done so far in one login. A page that lacks a password field means something else before than after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A user name was sent.
    pub identifier: bool,
    /// A password was sent.
    pub password: bool,
    /// A code was sent.
    pub code: bool,
    /// A choice was made: another site's button, an account, a method.
    pub choice: bool,
    /// A step elsewhere was waited for.
    pub external: bool,
    /// A captcha was solved by the person.
    pub captcha: bool,
}

impl Progress {
    /// Whether anything was done.
    #[must_use]
    pub const fn any(self) -> bool {
        self.identifier || self.password || self.code || self.choice || self.external
    }

    /// What is so once these fields have been sent.
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

/// What a page wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Understanding {
    /// Values, and perhaps it offers other ways beside.
    Fields(PageQuestion),
    /// A choice, and no value.
    Choices(PageQuestion),
    /// Something that only a person can do elsewhere, and it goes on by itself afterwards.
    External(External),
    /// Nothing any more: whoever it is, is logged in.
    LoggedIn {
        /// Where.
        url: String,
    },
    /// That a captcha be solved, and nothing goes on before.
    Captcha {
        /// Which.
        kind: String,
    },
    /// Nothing: it says no, and offers no way on.
    Refused(Refusal),
    /// Something that has nothing to do with who logs in and needs nobody: do it and read again.
    Step(Step),
    /// Patience.
    Busy,
    /// The login has come to where it may not go; nothing there is filled in.
    NotAllowed {
        /// The host, or `file:`.
        host: String,
    },
    /// It cannot be told.
    NotUnderstood,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageQuestion {
    /// In the order in which they are to be filled in.
    pub fields: Vec<Field>,
    /// Other ways, or what there is to choose from.
    pub choices: Vec<Choice>,
    /// What the page says was wrong with what it got.
    pub refusal: Option<Refusal>,
    /// Boxes to tick before anything is sent: "remember me", the terms of use.
    pub ticks: Vec<Handle>,
    /// What sends it; without one it is sent with the key.
    pub submit: Option<Handle>,
    /// A captcha that stands beside and has not been solved: nothing that is sent will be taken before.
    pub captcha: Option<String>,
}

/// A value that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Names it within a login: the same field has the same key in each reading. `password`, `code`, `text-company`.
    pub key: String,
    /// Under which name its value is kept: `username`, `email`, `phone`, `password`, `code`, or its own.
    pub reference: String,
    /// What it is for.
    pub kind: FieldKind,
    /// What it looks like.
    pub input: InputKind,
    /// What the page calls it, or a plain word of our own where it has no name.
    pub label: String,
    /// What stands in it while it is empty.
    pub placeholder: Option<String>,
    /// What the page says about it: where a code was sent.
    pub hint: Option<String>,
    /// How to find it by hand: CSS.
    pub selector: String,
    /// Whether it must have a value.
    pub required: bool,
    /// How a code comes.
    pub mfa: Option<MfaKind>,
    /// Where it goes: one box, or one for each character.
    pub boxes: Vec<Handle>,
    /// Whether it is a list, with these options.
    pub options: Vec<String>,
    /// The origin of the frame it stands in.
    pub origin: String,
}

text_enum! {
    /// What a field is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum FieldKind {
        /// Who: a user name, an address of mail, a number of a telephone.
        Identifier => "identifier",
        /// The password.
        Password => "password",
        /// A code that was sent to somebody.
        Code => "code",
        /// A code that somebody's authenticator shows.
        TotpCode => "totp_code",
        /// What such codes are made of.
        TotpSecret => "totp_secret",
        /// Anything else: a company, a tenant, a date.
        Text => "text",
    }
}

text_enum! {
    /// What a field looks like.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum InputKind {
        /// A line.
        Text => "text",
        /// An address of mail.
        Email => "email",
        /// A password.
        Password => "password",
        /// A number of a telephone.
        Tel => "tel",
        /// A number.
        Number => "number",
        /// An address of the web.
        Url => "url",
        /// A code.
        Code => "code",
        /// A code of an authenticator.
        Totp => "totp",
    }
}

/// Something to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Names it within a login: the same choice has the same key in each reading.
    pub key: String,
    /// What the page calls it.
    pub label: String,
    /// What the page says about it.
    pub description: Option<String>,
    /// What there is to choose between.
    pub kind: ChoiceKind,
    /// Of a second factor: which.
    pub mfa: Option<MfaKind>,
    /// Of a second factor: where it goes, as far as the page shows: `••• 42`.
    pub target: Option<String>,
    /// Of another site's button: whose. `google`.
    pub provider: Option<String>,
    /// Of an account: the origin of the frame it stands in.
    pub origin: String,
    /// How to press it.
    pub handle: Handle,
    /// What to press afterwards, where choosing alone does nothing.
    pub confirm: Option<Handle>,
    /// How to find it by hand: CSS.
    pub selector: String,
    /// How to find it by hand: XPath.
    pub xpath: String,
}

text_enum! {
    /// What there is to choose between.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ChoiceKind {
        /// Second factors.
        MfaMethod => "mfa_method",
        /// Other sites that vouch.
        SsoProvider => "sso_provider",
        /// Ways to sign in.
        SignInMethod => "sign_in_method",
        /// Ways to prove who it is.
        AuthMethod => "auth_method",
        /// Kinds of identifiers.
        IdentifierMethod => "identifier_method",
        /// Accounts.
        Account => "account",
        /// Something else.
        Other => "other",
    }
}

text_enum! {
    /// How a second factor comes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MfaKind {
        /// In a short message.
        Sms => "sms",
        /// By telephone.
        Call => "call",
        /// By mail.
        Email => "email",
        /// From an authenticator.
        Totp => "totp",
        /// As a question on another device.
        Push => "push",
        /// The password, instead.
        Password => "password",
        /// "Another way".
        Switch => "switch",
    }
}

/// A step elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// What the page says, a number to compare among it.
    pub message: String,
    /// How it comes.
    pub mfa: Option<MfaKind>,
    /// Other ways.
    pub choices: Vec<Choice>,
}

/// The page says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In its own words.
    pub website_error: String,
    /// What it means.
    pub kind: RefusalKind,
}

/// What a no means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The values are wrong.
    Rejected,
    /// The code is wrong or too old.
    CodeRejected,
    /// The account is locked or switched off.
    Locked,
    /// Too often; later it may work.
    RateLimited,
    /// The site itself has failed.
    SiteFailed,
    /// Another reason.
    Other,
}

/// Something to do that needs nobody.
#[derive(Clone, Debug)]
pub struct Step {
    /// What.
    pub kind: StepKind,
    /// How.
    pub acts: Vec<Act>,
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        // The acts of a step hold no secrets.
        self.kind == other.kind && format!("{:?}", self.acts) == format!("{:?}", other.acts)
    }
}

impl Eq for Step {}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Dismisses a question about cookies, with as little agreement as is offered.
    CookieBanner,
    /// Dismisses a dialog that asks for something else.
    Dialog,
    /// Goes from a page that anybody sees to the one where one logs in.
    OpenLogin,
    /// Answers "stay signed in?".
    StaySignedIn,
    /// Declines an offer between login and site: a passkey, a number for recovery.
    Decline,
    /// Presses the only button of a page that asks for nothing.
    Continue,
}

/// A value is not there that a page must have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no value for {key}")]
pub struct Missing {
    /// The field's key.
    pub key: String,
}

impl PageQuestion {
    /// The field of that key.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.key == key)
    }

    /// What to do to answer with these values, by key, and send them.
    ///
    /// # Errors
    /// [`Missing`] for the first field that must have a value and has none.
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

    /// What to do to choose that; `None` if there is no such choice.
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
    /// What to do to choose it.
    #[must_use]
    pub fn choose(&self) -> Vec<Act> {
        let window = self.kind == ChoiceKind::SsoProvider;
        let click = |what: &Handle| Act::Click { what: what.clone(), window };
        std::iter::once(&self.handle).chain(&self.confirm).map(click).collect()
    }
}

/// What the page wants of whoever logs in at a site with these hosts. Pure: the same reading is understood in the same way.
#[must_use]
pub fn understand(reading: &Reading, known: &Known, hosts: &AllowedHosts) -> Understanding {
    rules::understand(reading, known, hosts)
}
