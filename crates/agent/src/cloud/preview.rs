//! What an agent would do in the cloud, found out by asking alone.

use super::difference::difference;
use super::keep::CloudState;
use super::record::RecordFile;
use super::{Call, CloudError, CloudSettings, View, WantedRoutes, aws};

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
    wanted: &WantedRoutes,
) -> Result<Preview, CloudError> {
    let mut file = RecordFile::open(&settings.record, network)?;
    let cloud = &mut aws::Ec2::new(settings.login.clone());
    let state = CloudState::ask(cloud, wanted, &mut file).await?;
    let difference = difference(wanted, &state.interface, &state.tables, &file.record);
    let mut calls: Vec<Call> = difference.calls.into_iter().map(|planned| planned.call).collect();
    let superfluous = difference.superfluous.iter();
    calls.extend(superfluous.filter_map(|made| made.taken_back_by(state.table(&made.table)?)));
    let CloudState { interface, mut tables, .. } = state;
    for table in &mut tables {
        calls.iter().for_each(|call| table.note(call, &interface.instance));
    }
    let view = View { interface: Some(interface), tables, failed: difference.refused, ..View::default() };
    Ok(Preview { calls, view })
}
