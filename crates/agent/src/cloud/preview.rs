//! What an agent would do in the cloud, found out by asking alone.

use super::difference::difference;
use super::keep::Asked;
use super::record::RecordFile;
use super::{Call, CloudError, CloudSettings, View, Wanted, aws};

/// What an agent would do in the cloud, and how that is then.
#[derive(Debug)]
pub(crate) struct Preview {
    pub(crate) calls: Vec<Call>,
    pub(crate) view: View,
}

/// Asks the cloud, and changes nothing there.
pub(crate) async fn preview(
    settings: &CloudSettings,
    network: &str,
    wanted: &Wanted,
) -> Result<Preview, CloudError> {
    let file = RecordFile::open(&settings.record, network)?;
    let asked = Asked::ask(&mut aws::Ec2::new(settings.login.clone()), wanted, &file.record).await?;
    let difference = difference(wanted, asked.found(&file.record));
    let calls: Vec<Call> = difference.calls.into_iter().map(|planned| planned.call).collect();
    let Asked { interface, mut tables, .. } = asked;
    for table in &mut tables {
        calls.iter().for_each(|call| table.note(call, &interface.instance));
    }
    let view = View { interface: Some(interface), tables, failed: difference.refused, ..View::default() };
    Ok(Preview { calls, view })
}
