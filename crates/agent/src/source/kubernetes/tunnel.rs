//! flannel's form of what a node says of its end of a tunnel: `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`, or
//! `{"PublicKey":"…"}`.

use serde_json::Value;

use crate::backend::BackendKind;
use crate::flannel::{parse_tunnel, tunnel_value};
use crate::lease::TunnelData;

/// The text of an annotation. Nothing is `null`, as flannel writes it for transports without tunnels.
pub(super) fn text(data: Option<TunnelData>) -> String {
    data.map_or(Value::Null, tunnel_value).to_string()
}

/// What an annotation says.
///
/// # Errors
/// Why it makes no sense.
pub(super) fn parse(backend: Option<BackendKind>, text: &str) -> Result<Option<TunnelData>, String> {
    let data = serde_json::from_str(text).map_err(|error| error.to_string())?;
    parse_tunnel(backend, "backend-data", &data).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use linux::{Mac, PublicKey};

    use super::*;
    use crate::lease::VxlanEnd;

    #[test]
    fn the_form_is_flannels() {
        let end = VxlanEnd { vni: Some(1), mac: Mac([2, 0, 0, 0, 0, 0xab]) };
        assert_eq!(text(Some(TunnelData::Vxlan(end))), r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:ab"}"#);
        assert_eq!(text(None), "null");
        let parse_vxlan = |text: &str| parse(Some(BackendKind::Vxlan), text);
        for data in [Some(end), Some(VxlanEnd { vni: None, ..end }), None] {
            let data = data.map(TunnelData::Vxlan);
            assert_eq!(parse_vxlan(&text(data)), Ok(data));
        }
        assert!(parse_vxlan(r#"{"VNI":-1,"VtepMAC":"02:00:00:00:00:ab"}"#).is_err());
        assert!(parse_vxlan(r#"{"VNI":1,"VtepMAC":"02:00"}"#).unwrap_err().contains("VtepMAC"));
        let key = Some(TunnelData::WireGuard(PublicKey([7; 32])));
        assert_eq!(text(key), r#"{"PublicKey":"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="}"#);
        assert_eq!(parse(Some(BackendKind::WireGuard), &text(key)), Ok(key));
    }
}
