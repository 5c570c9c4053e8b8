// Ports of the stages whose plugins register here.

export interface RegisteringPlugin {
  readonly name: string;
  /** Path on the target of the socket for the plugin's own service. */
  readonly endpoint: string;
  /** Versions of that service that the plugin supports. */
  readonly versions: readonly string[];
}

/** Registers plugins of one type. */
export interface PluginHandler {
  /** @throws why a plugin is invalid. */
  validate(plugin: RegisteringPlugin): void;
  /** @throws why a plugin cannot be registered. */
  register(plugin: RegisteringPlugin, signal: AbortSignal): Promise<void>;
  /** A registered plugin is gone. The handler reports its own failures. */
  deregister(plugin: RegisteringPlugin, signal: AbortSignal): Promise<void>;
}
