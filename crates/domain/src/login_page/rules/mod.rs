//! The rules, from the page's marks and words to what it wants.

use super::{AllowedHosts, Asked, Field, FieldKind, Input, InputKind, Known, Reading, Understanding};

pub(super) fn understand(reading: &Reading, _known: &Known, hosts: &AllowedHosts) -> Understanding {
    if let Err(host) = hosts.check(&reading.url) {
        return Understanding::NotAllowed { host };
    }
    let usable = |input: &&Input| input.visible && !input.disabled;
    let fields: Vec<Field> = reading.inputs.iter().filter(usable).filter_map(|input| field(reading, input)).collect();
    if fields.is_empty() {
        return if reading.settled { Understanding::NotUnderstood } else { Understanding::Busy };
    }
    Understanding::Fields(Asked { fields, ..Asked::default() })
}

fn field(reading: &Reading, input: &Input) -> Option<Field> {
    let (key, kind, look) = match input.kind.as_str() {
        "password" => ("password", FieldKind::Password, InputKind::Password),
        "text" | "email" => ("identifier", FieldKind::Identifier, InputKind::Text),
        _ => return None,
    };
    Some(Field {
        key: key.to_owned(),
        reference: key.to_owned(),
        kind,
        input: look,
        label: input.label.clone(),
        placeholder: None,
        hint: None,
        selector: input.selector.clone(),
        required: true,
        mfa: None,
        boxes: vec![input.handle.clone()],
        options: Vec::new(),
        origin: reading.frames.get(input.frame)?.origin.clone(),
    })
}
