/** State of a feature gate in Kubernetes 1.36. */
export interface GateSpec {
  readonly stage: "alpha" | "beta" | "ga" | "deprecated";
  readonly byDefault: boolean;
  /** The gate can no longer be set to anything but its default. */
  readonly locked: boolean;
  /** The kubelet reads the gate; other gates concern the API server and other components. */
  readonly kubelet: boolean;
}

interface GateGroup extends GateSpec {
  /** Splits names at white space. */
  readonly names: string;
}

/** Every feature gate of a kubelet 1.36 with its state at 1.36; `kubelet` is true if the kubelet itself reads it.
 *  @see https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/ */
export const gateGroups: readonly GateGroup[] = [
  {
    stage: "alpha",
    byDefault: false,
    locked: false,
    kubelet: false,
    names: `
      APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
      CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
      ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRAListTypeAttributes
      DRANodeAllocatableResources DRAResourcePoolStatus GangScheduling HPAScaleToZero
      ManifestBasedAdmissionControlConfig MutablePVNodeAffinity PersistentVolumeClaimUnusedSinceTime
      ShardedListAndWatch StorageCapacityScoring StorageVersionAPI TopologyAwareWorkloadScheduling
      UserNamespacesHostNetworkSupport VolumeLimitScaling WorkloadAwarePreemption WorkloadWithJob`,
  },
  {
    stage: "alpha",
    byDefault: false,
    locked: false,
    kubelet: true,
    names: `
      CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
      ContainerStopSignals DRAWorkloadResourceClaims EventedPLEG GenericWorkload ImageVolumeWithDigest
      InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace
      LoggingAlphaOptions MemoryQoS NativeHistograms PodAndContainerStatsFromCRI PodLevelResourceManagers
      PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi
      TaintTolerationComparisonOperators TopologyManagerPolicyAlphaOptions WindowsCPUAndMemoryAffinity`,
  },
  {
    stage: "beta",
    byDefault: false,
    locked: false,
    kubelet: false,
    names: `
      ClusterTrustBundle ConcurrentWatchObjectDecode CoordinatedLeaderElection DRADeviceTaintRules
      MaxUnavailableStatefulSet SchedulerAsyncAPICalls StorageVersionMigrator`,
  },
  {
    stage: "beta",
    byDefault: false,
    locked: false,
    kubelet: true,
    names: `
      ClusterTrustBundleProjection LocalStorageCapacityIsolationFSQuotaMonitoring PodCertificateRequest
      SELinuxMount`,
  },
  {
    stage: "beta",
    byDefault: true,
    locked: false,
    kubelet: false,
    names: `
      APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth
      AuthorizePodWebsocketUpgradeCreatePermission CRDObservedGenerationTracking
      ClearingNominatedNodeNameAfterBinding ConstrainedImpersonation DRADeviceBindingConditions DRADeviceTaints
      DRAPartitionableDevices DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization
      DRASchedulerFilterTimeout DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
      DetectCacheInconsistency HPAConfigurableTolerance ListFromCacheSnapshot MatchLabelKeysInPodTopologySpread
      MatchLabelKeysInPodTopologySpreadSelectorMerge MutablePodResourcesForSuspendedJobs
      MutableSchedulingDirectivesForSuspendedJobs NominatedNodeNameForExpectation OpenAPIEnums
      OpportunisticBatching PodDeletionCost PodTopologyLabelsAdmission PortForwardWebsockets
      RelaxedServiceNameValidation RemoteRequestHeaderUID SchedulerAsyncPreemption SchedulerPopFromBackoffQ
      ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet
      StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
      StatefulSetSemanticRevisionComparison StorageVersionHash StrictIPCIDRValidation
      StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
      TokenRequestServiceAccountUIDValidation TranslateStreamCloseWebsocketRequests
      UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy WatchCacheInitializationPostStartHook
      WatchList`,
  },
  {
    stage: "beta",
    byDefault: true,
    locked: false,
    kubelet: true,
    names: `
      AtomicFIFO CPUManagerPolicyBetaOptions ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz
      ComponentStatusz ContainerCheckpoint ContainerRestartRules ContextualLogging DRAConsumableCapacity
      DRAExtendedResource EnvFiles ExtendWebSocketsToKubelet GracefulNodeShutdown
      GracefulNodeShutdownBasedOnPodPriority HostnameOverride InOrderInformersBatchProcess
      InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax
      KubeletEnsureSecretPulledImages KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
      LoggingBetaOptions NodeDeclaredFeatures PLEGOnDemandRelist PodLevelResources
      PodReadyToStartContainersCondition PreventStaticPodAPIReferences ReloadKubeletClientCAFile
      ReloadKubeletServerCertificateFile ResourceHealthStatus ResourceHealthStatusMessage
      RestartAllContainersOnContainerExits RotateKubeletServerCertificate TopologyManagerPolicyBetaOptions
      UnlockWhileProcessingFIFO WatchListClient WindowsGracefulNodeShutdown`,
  },
  {
    stage: "deprecated",
    byDefault: false,
    locked: false,
    kubelet: false,
    names: `
      AllowInsecureKubeletCertificateSigningRequests DeclarativeValidationTakeover KMSv1`,
  },
  {
    stage: "deprecated",
    byDefault: false,
    locked: false,
    kubelet: true,
    names: `
      AllowDNSOnlyNodeCSR ChangeContainerStatusOnKubeletRestart KubeletRegistrationGetOnExistsOnly
      WindowsHostNetwork`,
  },
  {
    stage: "deprecated",
    byDefault: false,
    locked: true,
    kubelet: false,
    names: `
      AllowOverwriteTerminationGracePeriodSeconds SeparateCacheWatchRPC`,
  },
  {
    stage: "deprecated",
    byDefault: false,
    locked: true,
    kubelet: true,
    names: `
      GitRepoVolumeDriver`,
  },
  {
    stage: "deprecated",
    byDefault: true,
    locked: false,
    kubelet: false,
    names: `
      ServiceCIDRStatusFieldWiping StorageNamespaceIndex`,
  },
  {
    stage: "deprecated",
    byDefault: true,
    locked: false,
    kubelet: true,
    names: `
      DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods`,
  },
  {
    stage: "deprecated",
    byDefault: true,
    locked: true,
    kubelet: false,
    names: `
      AggregatedDiscoveryRemoveBetaType`,
  },
  {
    stage: "deprecated",
    byDefault: true,
    locked: true,
    kubelet: true,
    names: `
      DisableNodeKubeProxyVersion`,
  },
  {
    stage: "ga",
    byDefault: true,
    locked: false,
    kubelet: false,
    names: `
      AllowServiceExternalIPs DRAPrioritizedList MutatingAdmissionPolicy`,
  },
  {
    stage: "ga",
    byDefault: true,
    locked: false,
    kubelet: true,
    names: `
      CustomCPUCFSQuotaPeriod InformerResourceVersion`,
  },
  {
    stage: "ga",
    byDefault: true,
    locked: true,
    kubelet: false,
    names: `
      APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
      AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting
      CSIServiceAccountTokenSecrets ConsistentListFromCache CustomResourceFieldSelectors DRAAdminAccess
      DeclarativeValidation DisableAllocatorDualWrite ExecProbeTimeout ExternalServiceAccountTokenSigner
      JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI
      KubeletPodResourcesDynamicResources KubeletTracing LogarithmicScaleDown MatchLabelKeysInPodAffinity
      MultiCIDRServiceAllocator NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread OrderedNamespaceDeletion
      PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
      PreferSameTrafficDistribution ProcMountType RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
      ResilientWatchCacheInitialization RetryGenerateName SchedulerQueueingHints SeparateTaintEvictionController
      ServiceAccountTokenJTI ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
      ServiceAccountTokenPodNodeInfo SidecarContainers StreamingCollectionEncodingToJSON
      StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration SystemdWatchdog
      VolumeAttributesClass WinDSR WinOverlay`,
  },
  {
    stage: "ga",
    byDefault: true,
    locked: true,
    kubelet: true,
    names: `
      DynamicResourceAllocation ImageMaximumGCAge ImageVolume InOrderInformers InPlacePodVerticalScaling
      KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesGet MutableCSINodeAllocatableCount NodeLogQuery
      NodeSwap PodLifecycleSleepAction RecoverVolumeExpansionFailure RecursiveReadOnlyMounts SELinuxChangePolicy
      SELinuxMountReadWriteOncePod SupplementalGroupsPolicy TopologyManagerPolicyOptions UserNamespacesSupport`,
  },
];
