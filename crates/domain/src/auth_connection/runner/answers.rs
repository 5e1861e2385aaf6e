//! The answer to a page, from submitted or stored values: pure functions.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::secrets::{EnteredValue, KnownSecrets, StoredValue};
use crate::auth_connection::{Flow, FlowKind, FlowRequirement, Submission};
use crate::login_page::{Act, Choice, ChoiceKind, Field, FieldKind, MfaKind, PageQuestion};

/// The actions that answer a page, and their effects on the flow.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) acts: Vec<Act>,
    /// The requirements that the page had.
    pub(super) needs: Vec<FlowRequirement>,
    /// The fields that are filled in.
    pub(super) fields: Vec<Field>,
    /// True if a choice is selected.
    pub(super) chooses: bool,
    /// The entered values that are stored with the flow, by name.
    pub(super) entered: BTreeMap<String, EnteredValue>,
}

/// The result of looking up the stored values for a page.
pub(super) enum StoredValues {
    /// The values answer the page.
    Answer(Answer),
    /// The values are for another site than the page with this origin.
    OtherSite(String),
    /// No stored values answer the page.
    Nothing,
}

/// Returns the requirement that a field stands for.
pub(super) fn need(field: &Field) -> FlowRequirement {
    match (field.kind, field.mfa) {
        (FieldKind::TotpCode, _) | (FieldKind::Code, Some(MfaKind::Totp)) => FlowRequirement::Totp,
        (FieldKind::Code, Some(MfaKind::Sms | MfaKind::Call)) => FlowRequirement::SmsCode,
        (FieldKind::Code, Some(MfaKind::Email)) => FlowRequirement::EmailCode,
        (FieldKind::Code, _) => FlowRequirement::OtherCode,
        _ => FlowRequirement::Value(field.reference.clone()),
    }
}

/// Returns whether a requirement is a code, which a login may ask for more than once.
fn is_code(need: &FlowRequirement) -> bool {
    matches!(
        need,
        FlowRequirement::Totp | FlowRequirement::SmsCode | FlowRequirement::EmailCode | FlowRequirement::OtherCode
    )
}

/// Returns the answer from a submission, if the page still asks for its values.
pub(super) fn of_person(question: &PageQuestion, submission: &Submission) -> Option<Answer> {
    let chosen = match &submission.choice {
        Some(id) => Some(question.choices.iter().find(|choice| choice.key == *id)?),
        None => None,
    };
    let fields: Vec<Field> =
        question.fields.iter().filter(|field| submission.values.contains_key(&field.key)).cloned().collect();
    if fields.is_empty() && chosen.is_none() {
        return None;
    }
    let acts = match chosen {
        None => question.answer(&submission.values).ok()?,
        // The choice sends the values that were typed before it, or discards them.
        Some(choice) => {
            let only = PageQuestion { fields: fields.clone(), ..PageQuestion::default() };
            let mut acts = only.answer(&submission.values).ok()?;
            acts.pop();
            acts.extend(choice.choose());
            acts
        }
    };
    let is_reusable =
        |field: &&Field| matches!(field.kind, FieldKind::Identifier | FieldKind::Password | FieldKind::Text);
    let entered = fields.iter().filter(is_reusable);
    let entered = entered.filter_map(|field| {
        let (value, origin) = (submission.values.get(&field.key)?.clone(), field.origin.clone());
        Some((field.reference.clone(), EnteredValue { value, origin }))
    });
    let entered = entered.collect();
    let needs =
        fields.iter().map(need).chain(chosen.map(|choice| FlowRequirement::Choice(choice.label.clone()))).collect();
    Some(Answer { acts, needs, chooses: chosen.is_some(), entered, fields })
}

/// Returns the answer from the stored values, if it has all required fields and a value that this flow has not sent
/// yet.
///
/// Values of another site are not used. A code of another site is requested from the person, because second factors
/// often belong to another site.
pub(super) fn of_store(
    question: &PageQuestion,
    stored: &KnownSecrets,
    flow: &Flow,
    now: OffsetDateTime,
) -> StoredValues {
    let (mut values, mut other_site) = (BTreeMap::new(), None);
    for field in &question.fields {
        match stored.value(field, now) {
            StoredValue::Here(value) => drop(values.insert(field.key.clone(), value)),
            StoredValue::OtherSite if !is_code(&need(field)) => {
                other_site = other_site.filter(|first: &&Field| first.required || !field.required).or(Some(field));
            }
            StoredValue::OtherSite | StoredValue::None if field.required => return StoredValues::Nothing,
            StoredValue::OtherSite | StoredValue::None => {}
        }
    }
    if let Some(field) = other_site.filter(|field| field.required || values.is_empty()) {
        return StoredValues::OtherSite(field.origin.clone());
    }
    let fields: Vec<Field> = question.fields.iter().filter(|field| values.contains_key(&field.key)).cloned().collect();
    let needs: Vec<FlowRequirement> = fields.iter().map(need).collect();
    // A code that was refused may have expired; any other value that was refused is wrong.
    let once_more = flow.refusals == 1 && needs.iter().any(is_code);
    if fields.is_empty() || (!once_more && needs.iter().all(|need| flow.needs.contains(need))) {
        return StoredValues::Nothing;
    }
    match question.answer(&values) {
        Ok(acts) => StoredValues::Answer(Answer { acts, needs, fields, chooses: false, entered: BTreeMap::new() }),
        Err(_) => StoredValues::Nothing,
    }
}

/// Returns the choice that follows from the stored values.
pub(super) fn choice(
    question: &PageQuestion,
    stored: &KnownSecrets,
    flow: &Flow,
    before: &[FlowRequirement],
) -> Option<Answer> {
    let new = |choice: &&Choice| !flow.needs.contains(&FlowRequirement::Choice(choice.label.clone()));
    let choices = || question.choices.iter().filter(new);
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
                let names_it = |text: &str| text.to_lowercase().contains(&name);
                names_it(&choice.label) || choice.description.as_deref().is_some_and(names_it)
            })
    };
    let app = |choice: &&Choice| stored.has_totp() && choice.mfa == Some(MfaKind::Totp);
    let site_as_before = |choice: &&Choice| choice.kind == ChoiceKind::SsoProvider && as_before(choice);
    // On a page with fields, only the SSO provider of the credential or of the last login is selected without a person.
    let found = choices().find(provider).or_else(|| choices().find(site_as_before)).or_else(|| {
        if !question.fields.is_empty() {
            return None;
        }
        choices().find(as_before).or_else(|| choices().find(account)).or_else(|| choices().find(app))
    })?;
    let needs = vec![FlowRequirement::Choice(found.label.clone())];
    Some(Answer { acts: found.choose(), needs, chooses: true, ..Answer::default() })
}
