//! What to answer a page with: pure.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::known::{EnteredValue, KnownSecrets, StoredValue};
use crate::auth_connection::{Flow, FlowKind, FlowRequirement, Submission};
use crate::login_page::{Act, Choice, ChoiceKind, Field, FieldKind, MfaKind, PageQuestion};

/// What is to be done to a page, and what is so afterwards.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) acts: Vec<Act>,
    /// What the page asked for.
    pub(super) needs: Vec<FlowRequirement>,
    /// The fields that are filled in.
    pub(super) fields: Vec<Field>,
    /// Whether something is chosen.
    pub(super) chooses: bool,
    /// What to keep of it, by name.
    pub(super) entered: BTreeMap<String, EnteredValue>,
}

/// What is stored for what a page asks for.
pub(super) enum StoredValues {
    /// It answers.
    Answer(Answer),
    /// It would, but is not for the site of the page: of this origin.
    OtherSite(String),
    /// It does not.
    Nothing,
}

/// What a field asks for.
pub(super) fn need(field: &Field) -> FlowRequirement {
    match (field.kind, field.mfa) {
        (FieldKind::TotpCode, _) | (FieldKind::Code, Some(MfaKind::Totp)) => FlowRequirement::Totp,
        (FieldKind::Code, Some(MfaKind::Sms | MfaKind::Call)) => FlowRequirement::SmsCode,
        (FieldKind::Code, Some(MfaKind::Email)) => FlowRequirement::EmailCode,
        (FieldKind::Code, _) => FlowRequirement::OtherCode,
        _ => FlowRequirement::Value(field.reference.clone()),
    }
}

/// Whether a need is of a code, which is asked for more than once in a login.
fn is_code(need: &FlowRequirement) -> bool {
    matches!(
        need,
        FlowRequirement::Totp | FlowRequirement::SmsCode | FlowRequirement::EmailCode | FlowRequirement::OtherCode
    )
}

/// What a person submitted, if the page still asks for it.
pub(super) fn of_person(asked: &PageQuestion, given: &Submission) -> Option<Answer> {
    let chosen = match &given.choice {
        Some(id) => Some(asked.choices.iter().find(|choice| choice.key == *id)?),
        None => None,
    };
    let fields: Vec<Field> =
        asked.fields.iter().filter(|field| given.values.contains_key(&field.key)).cloned().collect();
    if fields.is_empty() && chosen.is_none() {
        return None;
    }
    let acts = match chosen {
        None => asked.answer(&given.values).ok()?,
        // The choice sends what was typed before, or leaves it.
        Some(choice) => {
            let only = PageQuestion { fields: fields.clone(), ..PageQuestion::default() };
            let mut acts = only.answer(&given.values).ok()?;
            acts.pop();
            acts.extend(choice.choose());
            acts
        }
    };
    let kept = |field: &&Field| matches!(field.kind, FieldKind::Identifier | FieldKind::Password | FieldKind::Text);
    let entered = fields.iter().filter(kept);
    let entered = entered.filter_map(|field| {
        let (value, origin) = (given.values.get(&field.key)?.clone(), field.origin.clone());
        Some((field.reference.clone(), EnteredValue { value, origin }))
    });
    let entered = entered.collect();
    let needs =
        fields.iter().map(need).chain(chosen.map(|choice| FlowRequirement::Choice(choice.label.clone()))).collect();
    Some(Answer { acts, needs, chooses: chosen.is_some(), entered, fields })
}

/// What is stored, if it answers everything that the page must have, and something of it was not sent before in this flow.
///
/// What is stored for another site answers nothing. A code that is, is asked of the person: second factors are often another site's.
pub(super) fn of_store(asked: &PageQuestion, stored: &KnownSecrets, flow: &Flow, now: OffsetDateTime) -> StoredValues {
    let (mut values, mut elsewhere) = (BTreeMap::new(), None);
    for field in &asked.fields {
        match stored.value(field, now) {
            StoredValue::Here(value) => drop(values.insert(field.key.clone(), value)),
            StoredValue::Elsewhere if !is_code(&need(field)) => {
                elsewhere = elsewhere.filter(|first: &&Field| first.required || !field.required).or(Some(field));
            }
            StoredValue::Elsewhere | StoredValue::None if field.required => return StoredValues::Nothing,
            StoredValue::Elsewhere | StoredValue::None => {}
        }
    }
    if let Some(field) = elsewhere.filter(|field| field.required || values.is_empty()) {
        return StoredValues::OtherSite(field.origin.clone());
    }
    let fields: Vec<Field> = asked.fields.iter().filter(|field| values.contains_key(&field.key)).cloned().collect();
    let needs: Vec<FlowRequirement> = fields.iter().map(need).collect();
    // A code that was refused may have been too old; a value that was refused is wrong.
    let once_more = flow.refusals == 1 && needs.iter().any(is_code);
    if fields.is_empty() || (!once_more && needs.iter().all(|need| flow.needs.contains(need))) {
        return StoredValues::Nothing;
    }
    match asked.answer(&values) {
        Ok(acts) => StoredValues::Answer(Answer { acts, needs, fields, chooses: false, entered: BTreeMap::new() }),
        Err(_) => StoredValues::Nothing,
    }
}

/// The choice that is plain from what is stored.
pub(super) fn choice(
    asked: &PageQuestion,
    stored: &KnownSecrets,
    flow: &Flow,
    before: &[FlowRequirement],
) -> Option<Answer> {
    let new = |choice: &&Choice| !flow.needs.contains(&FlowRequirement::Choice(choice.label.clone()));
    let choices = || asked.choices.iter().filter(new);
    let provider = |choice: &&Choice| {
        choice.kind == ChoiceKind::SsoProvider
            && stored
                .sso_provider
                .as_ref()
                .zip(choice.provider.as_ref())
                .is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
    };
    let as_before = |choice: &&Choice| {
        flow.kind == FlowKind::Reauth && before.contains(&FlowRequirement::Choice(choice.label.clone()))
    };
    let account = |choice: &&Choice| {
        choice.kind == ChoiceKind::Account
            && stored.identifier(&choice.origin).is_some_and(|name| {
                let name = name.to_lowercase();
                let says = |text: &str| text.to_lowercase().contains(&name);
                says(&choice.label) || choice.description.as_deref().is_some_and(says)
            })
    };
    let app = |choice: &&Choice| stored.has_totp() && choice.mfa == Some(MfaKind::Totp);
    let site_as_before = |choice: &&Choice| choice.kind == ChoiceKind::SsoProvider && as_before(choice);
    // Offers beside fields are not taken up unasked, but for the site that was named, or by which the last login went.
    let found = choices().find(provider).or_else(|| choices().find(site_as_before)).or_else(|| {
        if !asked.fields.is_empty() {
            return None;
        }
        choices().find(as_before).or_else(|| choices().find(account)).or_else(|| choices().find(app))
    })?;
    let needs = vec![FlowRequirement::Choice(found.label.clone())];
    Some(Answer { acts: found.choose(), needs, chooses: true, ..Answer::default() })
}
