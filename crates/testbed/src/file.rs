//! What a testbed's file describes: shards of servers, or an app.

use crate::app::{self, Role};
use crate::config::TestbedConfig;
use curtail_config::{ConfigErrors, Section};

/// What a file describes.
#[derive(Clone, Debug, PartialEq)]
pub enum File {
    /// Shards of servers that are alike.
    Servers(TestbedConfig),
    /// An app of three roles.
    App(app::Config),
}

impl File {
    /// What `text` describes, which was written in the file `name`, with `sets` (`section.key=value`) put
    /// into it. With `roles`, it is for a process that has these roles of an app.
    ///
    /// # Errors
    /// All errors of the text and of the sets.
    pub fn from_yaml(
        name: &str,
        text: &str,
        sets: &[String],
        roles: Option<&[Role]>,
    ) -> Result<Self, ConfigErrors> {
        curtail_config::read_with_sets(name, text, sets, |s| Self::read(s, roles))
    }

    fn read(s: &mut Section<'_>, roles: Option<&[Role]>) -> Self {
        let apps = [("google", ())];
        match s.choice("app", "The app to start; absent: servers of shards.", &apps).optional() {
            Some(()) => Self::App(app::Config::read(s, roles.unwrap_or(&Role::ALL))),
            None => {
                if roles.is_some() {
                    s.error("app", "there is none: only an app has roles");
                }
                Self::Servers(TestbedConfig::read(s))
            }
        }
    }
}
