//! JSON without negative zeros. An empty sum of floats is `-0.0`, and a reader takes the sign for a decrease.

use serde_json::{Value, json};

/// The same JSON with `0.0` for each `-0.0`.
pub(crate) fn without_negative_zeros(mut value: Value) -> Value {
    match &mut value {
        Value::Number(number) if number.is_f64() && number.as_f64() == Some(0.0) => json!(0.0),
        Value::Array(items) => items.drain(..).map(without_negative_zeros).collect(),
        Value::Object(members) => {
            members.values_mut().for_each(|member| *member = without_negative_zeros(member.take()));
            value
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_zero_has_no_sign_at_any_depth() {
        let nothing: f64 = [0.0_f64; 0].iter().sum();
        let value = json!({ "sum": nothing, "list": [-0.0, { "in": -0.0 }], "less": -0.5, "n": 0 });
        let expected = r#"{"less":-0.5,"list":[0.0,{"in":0.0}],"n":0,"sum":0.0}"#;
        assert_eq!(without_negative_zeros(value).to_string(), expected);
    }
}
